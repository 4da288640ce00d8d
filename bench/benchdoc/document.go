package main

import (
	"fmt"
	"strings"
)

// A block begins with beginPrefix, its name and beginSuffix, and ends with endLine, each on a line of its own.
const (
	beginPrefix = "<!-- bench:"
	beginSuffix = " -->"
	endLine     = "<!-- end -->"
)

// block is the content of a block in a document, without the lines that delimit it: doc[begin:end].
type block struct {
	name       string
	begin, end int
}

// blocks returns the blocks of a document in their order. It returns an error if blocks are nested, unterminated or not
// begun, or if two have the same name.
func blocks(doc string) ([]block, error) {
	var found []block
	open, at, number := false, 0, 0
	seen := make(map[string]bool)
	for text := range strings.Lines(doc) {
		number++
		line := strings.TrimRight(text, "\n")
		name, begins := strings.CutPrefix(line, beginPrefix)
		switch {
		case begins && open:
			return nil, fmt.Errorf("line %d: a block begins inside of %q", number, found[len(found)-1].name)
		case begins:
			name, begins = strings.CutSuffix(name, beginSuffix)
			if !begins || seen[name] {
				return nil, fmt.Errorf("line %d: %q: want a block with a unique name, like %sgroup%s", number, line, beginPrefix, beginSuffix)
			}
			seen[name], open = true, true
			found = append(found, block{name: name, begin: at + len(text)})
		case line == endLine && !open:
			return nil, fmt.Errorf("line %d: a block ends that did not begin", number)
		case line == endLine:
			found[len(found)-1].end, open = at, false
		}
		at += len(text)
	}
	if open {
		return nil, fmt.Errorf("the block %q does not end", found[len(found)-1].name)
	}
	return found, nil
}

// replace returns the document with new content in the named block.
func replace(doc, name, content string) (string, error) {
	found, err := blocks(doc)
	if err != nil {
		return "", err
	}
	for _, b := range found {
		if b.name == name {
			return doc[:b.begin] + strings.TrimRight(content, "\n") + "\n" + doc[b.end:], nil
		}
	}
	return "", fmt.Errorf("the document has no block %q", name)
}

// table returns a Markdown table.
func table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
