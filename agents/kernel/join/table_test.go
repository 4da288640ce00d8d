package join

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A process has a table of threads if a mapping has its name and its header. Broken tables are ignored.
func TestTable(t *testing.T) {
	const at = 0x10000
	for name, c := range map[string]struct {
		mapping        string
		signature      string
		version, slots uint32
		found          bool
	}{
		"table":           {"/tmp/sibyl-threads-123 (deleted)", tableSignature, tableVersion, 32768, true},
		"no file":         {"", tableSignature, tableVersion, 32768, false},
		"another file":    {"/tmp/threads", tableSignature, tableVersion, 32768, false},
		"being written":   {"/tmp/sibyl-threads-123", "", tableVersion, 32768, false},
		"another version": {"/tmp/sibyl-threads-123", tableSignature, 2, 32768, false},
		"no slots":        {"/tmp/sibyl-threads-123", tableSignature, tableVersion, 0, false},
		"too many slots":  {"/tmp/sibyl-threads-123", tableSignature, tableVersion, maxSlots + 1, false},
	} {
		folder := t.TempDir()
		maps := fmt.Sprintf("00001000-00002000 r-xp 00000000 08:01 7 /usr/bin/java\n%08x-%08x rw-p "+
			"00000000 08:01 8 %s\n", at, at+1<<21, c.mapping)
		memory := append(make([]byte, at+tableHeader), c.signature...)
		memory = append(memory, make([]byte, at+tableHeader+8-len(memory))...)
		memory = binary.NativeEndian.AppendUint32(memory, c.version)
		memory = binary.NativeEndian.AppendUint32(memory, c.slots)
		for file, content := range map[string][]byte{"maps": []byte(maps), "mem": memory} {
			if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := tableContext(folder)
		want := (Context{Kind: ThreadTable, Table: at + tablePage, Slots: c.slots})
		if c.found && (err != nil || got != want) || !c.found && (err == nil || got != Context{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A mapping that is cut off has no table, nor has a process that has ended.
func TestNoTable(t *testing.T) {
	folder := t.TempDir()
	if _, err := tableContext(folder); err == nil {
		t.Error("a process without mappings has a table")
	}
	if err := os.WriteFile(filepath.Join(folder, "maps"),
		[]byte("10000-20000 rw-p 00000000 08:01 8 /tmp/sibyl-threads-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "mem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := tableContext(folder); err == nil || c != (Context{}) {
		t.Errorf("%+v, %v", c, err)
	}
}
