package history

// Changes counts the changes of a history, so that a comparison can keep its results for sites without changes. The
// values of the counter after some changes tell which results are outdated.
type Changes struct {
	count uint64
	// all is the value after the last change of all sites, past after the last change of calls or skipped times before
	// compared, and renumbered after sites were renumbered.
	all, past, renumbered uint64
	compared              Slice // latest start of a window that was compared
}

// next counts a change, and returns the new number of changes.
func (c *Changes) next() uint64 {
	c.count++
	return c.count
}

// skip counts a change of the skipped times from slice `from` on, unless no window is compared with them.
func (c *Changes) skip(from Slice) {
	if from < c.compared {
		c.all = c.next()
		c.past = c.all
	}
}

// Note notes that a window starting with slice `from` is compared. It returns the number of changes of the history so
// far.
func (c *Changes) Note(from Slice) (changes uint64) {
	c.compared = max(c.compared, from)
	return c.count
}

// Since reports whether the calls of s, or skipped times before a compared window, have changed since the number of
// changes was n.
func (c *Changes) Since(s *Series, n uint64) bool { return max(s.changed, c.all) > n }

// Renumbered returns the number of changes at the time when the sites of the history were last renumbered.
func (c *Changes) Renumbered() uint64 { return c.renumbered }
