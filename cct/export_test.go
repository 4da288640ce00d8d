package cct

// Pruned returns the number of contexts that Age has forgotten.
func (b *Builder) Pruned() uint64 { return b.pruned }
