"""The tool layer: what a tool is, which there are, how one is called; and the tools that come with the product."""
