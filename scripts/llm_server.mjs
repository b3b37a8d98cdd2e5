// A small language model behind the OpenAI chat protocol, on loopback: for the demo and for tests, not for production.
// Usage: node llm_server.mjs MODEL.gguf [PORT]. Prints its base URL once it is ready, and ends when its standard input closes.
// It answers chat completions: plain, as JSON by schema, as one forced tool call, and streamed; one call after the other.
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

// The library lies in a folder of its own, named by LLM_MODULES, and not beside this file.
const require = createRequire(path.join(process.env.LLM_MODULES ?? process.cwd(), "here.js"));
const { getLlama, LlamaChat } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);

const [modelPath, port = "0"] = process.argv.slice(2);
const NAME = "smollm2-135m-instruct";
const CONTEXT_TOKENS = 8192;
const BODY_LIMIT = 10 * 1024 * 1024;

// One thread: two that share busy cores wait for each other, and a call takes ten times as long.
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error", maxThreads: 1 });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: CONTEXT_TOKENS, sequences: 1 });
const sequence = context.getSequence();

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function text(content) {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((part) => part.text ?? "").join("");
  return "";
}

function historyOf(messages) {
  return messages.map(({ role, content }) => {
    if (role === "system" || role === "developer") return { type: "system", text: text(content) };
    if (role === "assistant") return { type: "model", response: [text(content)] };
    if (role === "tool") return { type: "user", text: `Tool result: ${text(content)}` };
    return { type: "user", text: text(content) };
  });
}

function forcedTool({ tool_choice: choice, tools = [] }) {
  if (choice !== "required" && !choice?.function) return null;
  const wanted = choice.function?.name;
  const found = tools.find((tool) => !wanted || tool.function.name === wanted);
  if (!found) throw new Refused(400, "invalid_request_error", `tool_choice names no tool of this request: ${wanted}`);
  return found.function;
}

async function grammarFor(request, tool) {
  const format = request.response_format;
  const schema = tool ? tool.parameters : format?.json_schema?.schema;
  if (schema) return llama.createGrammarForJsonSchema(schema);
  return format?.type === "json_object" ? llama.getGrammarFor("json") : undefined;
}

function check(request) {
  if (!Array.isArray(request?.messages) || request.messages.length === 0) {
    throw new Refused(400, "invalid_request_error", "messages: expected a list with at least one message");
  }
  const tokens = request.messages.reduce((sum, m) => sum + model.tokenize(text(m.content)).length + 8, 0);
  if (tokens > CONTEXT_TOKENS - 64) {
    throw new Refused(400, "context_length_exceeded", `the messages have about ${tokens} tokens, the model takes ${CONTEXT_TOKENS}`);
  }
}

async function complete(request, signal, onText) {
  const tool = forcedTool(request);
  const grammar = await grammarFor(request, tool);
  const chat = new LlamaChat({ contextSequence: sequence });
  const before = sequence.tokenMeter.getState();
  try {
    const answer = await chat.generateResponse([...historyOf(request.messages), { type: "model", response: [] }], {
      grammar,
      maxTokens: request.max_completion_tokens ?? request.max_tokens ?? 512,
      temperature: request.temperature ?? 0,
      seed: request.seed ?? 1,
      // So small a model falls into repeating itself until its tokens run out; a grammar holds it by itself.
      repeatPenalty: grammar ? undefined : { lastTokens: 256, penalty: 1.2, penalizeNewLine: false },
      customStopTriggers: request.stop ? [request.stop].flat() : undefined,
      onTextChunk: tool ? undefined : onText,
      signal,
    });
    const used = sequence.tokenMeter.diff(before);
    const cut = answer.metadata.stopReason === "maxTokens";
    return {
      finish_reason: cut ? "length" : tool ? "tool_calls" : "stop",
      message: tool
        ? {
            role: "assistant",
            content: null,
            tool_calls: [{ id: `call_${Date.now()}`, type: "function", function: { name: tool.name, arguments: answer.response } }],
          }
        : { role: "assistant", content: answer.response },
      usage: {
        prompt_tokens: used.usedInputTokens,
        completion_tokens: used.usedOutputTokens,
        total_tokens: used.usedInputTokens + used.usedOutputTokens,
      },
    };
  } finally {
    chat.dispose({ disposeSequence: false });
  }
}

let last = Promise.resolve();

// The model has one place to think in, so calls wait for each other.
function inTurn(work) {
  const mine = last.then(work);
  last = mine.catch(() => {});
  return mine;
}

async function bodyOf(incoming) {
  const parts = [];
  let size = 0;
  for await (const part of incoming) {
    size += part.length;
    if (size > BODY_LIMIT) throw new Refused(413, "invalid_request_error", `the body is over ${BODY_LIMIT} bytes`);
    parts.push(part);
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString("utf8"));
  } catch (error) {
    throw new Refused(400, "invalid_request_error", `the body is not JSON: ${error.message}`);
  }
}

function sendJson(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

async function chatCompletions(incoming, response) {
  const request = await bodyOf(incoming);
  check(request);
  const leaving = new AbortController();
  response.on("close", () => leaving.abort());
  const base = { id: `chatcmpl-${Date.now()}`, created: Math.floor(Date.now() / 1000), model: NAME };
  await inTurn(async () => {
    if (leaving.signal.aborted) return;
    if (!request.stream) {
      const { finish_reason, message, usage } = await complete(request, leaving.signal);
      sendJson(response, 200, { ...base, object: "chat.completion", choices: [{ index: 0, message, finish_reason }], usage });
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    const event = (value) => response.write(`data: ${JSON.stringify({ ...base, object: "chat.completion.chunk", ...value })}\n\n`);
    const piece = (delta, finish_reason = null) => event({ choices: [{ index: 0, delta, finish_reason }] });
    const { finish_reason, message, usage } = await complete(request, leaving.signal, (content) => piece({ content }));
    if (message.tool_calls) piece({ tool_calls: message.tool_calls.map((call, index) => ({ index, ...call })) });
    piece({}, finish_reason);
    if (request.stream_options?.include_usage) event({ choices: [], usage });
    response.end("data: [DONE]\n\n");
  });
}

async function answer(incoming, response) {
  try {
    const { pathname } = new URL(incoming.url, "http://localhost");
    if (incoming.method === "GET" && pathname === "/v1/models") {
      sendJson(response, 200, { object: "list", data: [{ id: NAME, object: "model", created: 0, owned_by: "local" }] });
    } else if (incoming.method === "POST" && pathname === "/v1/chat/completions") {
      await chatCompletions(incoming, response);
    } else {
      throw new Refused(404, "not_found", `nothing here answers ${incoming.method} ${pathname}`);
    }
  } catch (error) {
    if (response.destroyed) return;
    if (!(error instanceof Refused)) console.error(error);
    if (response.headersSent) response.destroy();
    else sendJson(response, error.status ?? 500, { error: { message: error.message, type: error.code ?? "server_error", code: error.code ?? null } });
  }
}

const server = http.createServer(answer);
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/v1 ${NAME}`));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
