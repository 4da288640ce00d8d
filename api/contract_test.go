package api

import (
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Every key of the contract has a value. In a flow mapping, an unquoted comma ends a description, and the rest of it
// becomes a key without a value.
func TestContractKeysHaveValues(t *testing.T) {
	var doc any
	if err := yaml.Unmarshal(contractText, &doc); err != nil {
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

// Errors describe every pattern of the contract.
func TestPatternsAreDescribed(t *testing.T) {
	found := regexp.MustCompile(`pattern: "([^"]+)"`).FindAllSubmatch(contractText, -1)
	for _, m := range found {
		if patterns[string(m[1])] == "" {
			t.Errorf("the pattern %s has no description", m[1])
		}
	}
	if len(found) == 0 {
		t.Error("found no pattern")
	}
}
