module github.com/sibyl-trace/sibyl/agents/tracepoint

go 1.26.0
