package history

// Changes counts the changes of a history, so that a comparison can reuse its results for sites that have not changed.
// The counter is recorded at certain changes; a result is outdated if a change that affects it came later.
type Changes struct {
	count uint64
	// all, past and renumbered are values of count: after the last change that affects all sites, after the last change
	// of calls or skipped times before compared, and after the sites were last renumbered.
	all, past, renumbered uint64
	compared              Slice // latest start of a window that was compared
}

// next counts a change, and returns the new number of changes.
func (c *Changes) next() uint64 {
	c.count++
	return c.count
}

// skip records that the skipped times have changed from slice `from` on. It does nothing if no compared window starts
// after `from`.
func (c *Changes) skip(from Slice) {
	if from < c.compared {
		c.all = c.next()
		c.past = c.all
	}
}

// Note records that a window starting with slice `from` is compared. It returns the number of changes of the history so
// far.
func (c *Changes) Note(from Slice) (changes uint64) {
	c.compared = max(c.compared, from)
	return c.count
}

// Since reports whether the calls of s, or the skipped times before a compared window, have changed since Note returned
// n.
func (c *Changes) Since(s *Series, n uint64) bool { return max(s.changed, c.all) > n }

// Renumbered returns the number of changes up to the last renumbering of the sites. Site numbers stay valid as long as
// the result stays the same.
func (c *Changes) Renumbered() uint64 { return c.renumbered }
