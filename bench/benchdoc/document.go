package main

import (
	"fmt"
	"strings"
)

// Marks of a block, each on a line of its own.
const (
	beginMark = "<!-- bench:"
	markEnd   = " -->"
	endMark   = "<!-- end -->"
)

// span is where the content of a block is in a document: from the line after its first mark up to its last mark.
type span struct {
	name       string
	begin, end int
}

// blocks returns the blocks of a document in their order. It is an error if one does not end before the next begins or
// the document ends, if one ends that did not begin, or if two have the same name.
func blocks(doc string) ([]span, error) {
	var found []span
	open, at, number := false, 0, 0
	seen := make(map[string]bool)
	for line := range strings.Lines(doc) {
		number++
		mark := strings.TrimRight(line, "\n")
		name, isBegin := strings.CutPrefix(mark, beginMark)
		switch {
		case isBegin && open:
			return nil, fmt.Errorf("line %d: a block begins inside of %q", number, found[len(found)-1].name)
		case isBegin:
			name, isBegin = strings.CutSuffix(name, markEnd)
			if !isBegin || seen[name] {
				return nil, fmt.Errorf("line %d: %q: want one block with a name of its own, like %sgroup%s", number, mark, beginMark, markEnd)
			}
			seen[name], open = true, true
			found = append(found, span{name: name, begin: at + len(line)})
		case mark == endMark && !open:
			return nil, fmt.Errorf("line %d: a block ends that did not begin", number)
		case mark == endMark:
			found[len(found)-1].end, open = at, false
		}
		at += len(line)
	}
	if open {
		return nil, fmt.Errorf("the block %q does not end", found[len(found)-1].name)
	}
	return found, nil
}

// replace returns the document with another content of the block with that name.
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

// table writes a table of Markdown.
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
