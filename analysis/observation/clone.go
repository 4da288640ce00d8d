package observation

import "slices"

// Clone returns a deep copy of o.
func (o *Observation) Clone() *Observation {
	c := *o
	c.Behind = slices.Clone(o.Behind)
	c.Children = slices.Clone(o.Children)
	c.Contexts = slices.Clone(o.Contexts)
	c.Edges = slices.Clone(o.Edges)
	c.Refined = slices.Clone(o.Refined)
	c.Variables = slices.Clone(o.Variables)
	c.Records = nil
	return &c
}
