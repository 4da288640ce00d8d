package main

import (
	"os"
	"strings"
	"testing"
)

// docs/collector.md shows deploy/collector.yaml, the verified configuration.
func TestCollectorDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/collector.md")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("../../deploy/collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```yaml\n"+string(config)+"```\n") {
		t.Error("docs/collector.md does not contain deploy/collector.yaml verbatim")
	}
}
