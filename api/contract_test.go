package api

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

// readContract returns the contract. It fails the test if the compressed copy in the program differs.
func readContract(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := contractText()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed, text) {
		t.Fatal("openapi.yaml.gz differs from openapi.yaml: run make generate")
	}
	return text
}

// Every key of the contract has a value. In a flow mapping, an unquoted comma ends a description, and the rest becomes
// a key without a value.
func TestContractKeysHaveValues(t *testing.T) {
	var doc any
	if err := yaml.Unmarshal(readContract(t), &doc); err != nil {
		t.Fatal(err)
	}
	checkValues(t, "", doc)
}

func checkValues(t *testing.T, path string, value any) {
	t.Helper()
	switch v := value.(type) {
	case nil:
		t.Errorf("%s has no value: quote the text in which it stands", path)
	case map[string]any:
		for key, x := range v {
			checkValues(t, path+"/"+key, x)
		}
	case []any:
		for _, x := range v {
			checkValues(t, path, x)
		}
	}
}

// Error messages describe every pattern of the contract.
func TestPatternsAreDescribed(t *testing.T) {
	found := regexp.MustCompile(`pattern: "([^"]+)"`).FindAllSubmatch(readContract(t), -1)
	for _, m := range found {
		if patterns[string(m[1])] == "" {
			t.Errorf("the pattern %s has no description", m[1])
		}
	}
	if len(found) == 0 {
		t.Error("found no pattern")
	}
}
