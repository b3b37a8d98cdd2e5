"""The words of the approval page in every language that it speaks.

Only text; no markup, so that nothing here needs escaping rules of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

Texts = Mapping[str, str]

ENGLISH: Texts = {
    "lang": "en",
    "heading": "Your decision is needed",
    "decided_heading": "This is decided",
    "workflow": "Workflow",
    "step": "Step",
    "asked": "Asked",
    "until": "Open until",
    "as": "You decide as",
    "matter_before": "What will be carried out",
    "matter_after": "What was written",
    "matter_edit": "You can change the text before you approve it",
    "matter_edit_json": "You can change these values (JSON) before you approve them",
    "nothing": "nothing",
    "yes": "yes",
    "no": "no",
    "choose": "please choose",
    "required": "required",
    "form": "Please fill in",
    "comment": "Comment",
    "comment_hint": "Kept with your decision; whoever works on after a rejection may read it.",
    "approve": "Approve",
    "reject": "Reject",
    "approve_before": "If you approve, “{tool}” is called once with exactly what is shown here.",
    "approve_irreversible": "This cannot be undone.",
    "approve_after": "If you approve, the workflow goes on with what is shown here.",
    "approve_gate": "If you approve, the workflow goes on.",
    "reject_call": "If you reject, it is not called and the workflow takes the way that it has for a rejection.",
    "reject_other": "If you reject, the workflow takes the way that it has for a rejection.",
    "silence": "If nobody decides in time, nothing is approved.",
    "decided_approve": "Approved",
    "decided_reject": "Rejected",
    "by": "By",
    "at": "At",
    "channel": "By way of",
    "values": "Filled in",
    "edited": "The text was changed to",
    "unknown_link": "This link is not valid. Please open it exactly as it was sent to you.",
    "link_expired": "This link has expired.",
    "approval_over": "This matter is over: it was not decided in time, or it is no longer needed.",
    "changed": "The matter has changed since you opened this page. Please look at it again before you decide.",
    "already": "Somebody else has decided already.",
    "denied": "This decision is not yours.",
    "invalid": "Nothing was decided. Please correct what is marked.",
    "unavailable": "The service cannot answer at the moment. Nothing was decided; please try again.",
    "other_error": "Nothing was decided.",
    "error_heading": "Sorry",
    "not_json": "This is no JSON.",
    "not_number": "This is no number.",
    "missing": "This is required.",
}

CHINESE: Texts = {
    "lang": "zh",
    "heading": "需要您的决定",
    "decided_heading": "此事项已有决定",
    "workflow": "工作流",
    "step": "步骤",
    "asked": "请求时间",
    "until": "截止时间",
    "as": "您的决定身份",
    "matter_before": "将要执行的内容",
    "matter_after": "生成的内容",
    "matter_edit": "批准前可以修改文字",
    "matter_edit_json": "批准前可以修改这些值(JSON)",
    "nothing": "无",
    "yes": "是",
    "no": "否",
    "choose": "请选择",
    "required": "必填",
    "form": "请填写",
    "comment": "备注",
    "comment_hint": "备注会与您的决定一起保存;驳回后的处理者可以看到。",
    "approve": "批准",
    "reject": "驳回",
    "approve_before": "如果您批准,将按此处显示的内容调用一次“{tool}”。",
    "approve_irreversible": "此操作无法撤销。",
    "approve_after": "如果您批准,工作流将使用此处显示的内容继续执行。",
    "approve_gate": "如果您批准,工作流将继续执行。",
    "reject_call": "如果您驳回,将不会调用,工作流按驳回的路径继续。",
    "reject_other": "如果您驳回,工作流按驳回的路径继续。",
    "silence": "如果无人按时决定,则不视为批准。",
    "decided_approve": "已批准",
    "decided_reject": "已驳回",
    "by": "决定人",
    "at": "时间",
    "channel": "方式",
    "values": "填写内容",
    "edited": "文字已修改为",
    "unknown_link": "链接无效。请按收到的原样打开。",
    "link_expired": "链接已过期。",
    "approval_over": "此事项已结束:未按时决定,或已不再需要。",
    "changed": "您打开页面之后内容已变化。请重新查看后再决定。",
    "already": "已有其他人作出决定。",
    "denied": "您无权作此决定。",
    "invalid": "尚未作出决定。请修改标出的内容。",
    "unavailable": "服务暂时无法响应。尚未作出决定,请稍后再试。",
    "other_error": "尚未作出决定。",
    "error_heading": "抱歉",
    "not_json": "不是有效的 JSON。",
    "not_number": "不是数字。",
    "missing": "此项必填。",
}

_LANGUAGES: Mapping[str, Texts] = {"en": ENGLISH, "zh": CHINESE}


def texts_for(accept_language: str) -> Texts:
    """The texts in the language that an `Accept-Language` header likes best; English if it names none of ours."""
    best, best_weight = ENGLISH, 0.0
    for part in accept_language[:1000].split(","):
        name, _, rest = part.strip().partition(";")
        texts = _LANGUAGES.get(name.strip().lower().split("-")[0])
        weight = _weight(rest)
        if texts is not None and weight > best_weight:
            best, best_weight = texts, weight
    return best


def _weight(text: str) -> float:
    name, _, value = text.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return min(1.0, max(0.0, float(value)))
    except ValueError:
        return 0.0
