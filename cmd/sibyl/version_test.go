package main

import "testing"

// The version is the one set by the linker.
func TestDescribed(t *testing.T) {
	defer func(before string) { described = before }(described)
	described = "v1.2.3-4-gabcdef0"
	if v := buildVersion(); v.Version != described || v.Revision == "" {
		t.Errorf("got %+v, want the version %s", v, described)
	}
}
