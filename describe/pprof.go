package describe

import (
	"io"

	"github.com/google/pprof/profile"
)

// Pprof writes the critical paths of request types as a gzipped pprof profile. Each calling context with own time has
// one sample, labelled with its request_type. Its value "exclusive" is the context's own time in ns, summed over all
// requests. Its value "requests" is the number of requests if the context is the entry, and 0 otherwise.
func Pprof(w io.Writer, profiles []Profile) error {
	const comment = "critical path by calling context; values are exclusive times over all requests"
	b := NewProfileBuilder(comment, "requests", "exclusive")
	for i := range profiles {
		for k := range profiles[i].Frames {
			b.addFrame(&profiles[i], k)
		}
	}
	return b.Write(w)
}

// ProfileBuilder builds a pprof profile of stacks of names.
type ProfileBuilder struct {
	out       *profile.Profile
	functions map[string]*profile.Location
}

// NewProfileBuilder returns a builder for a profile with two values per sample, a count and a time in ns. The
// parameters count and nanoseconds are the names of their sample types. Tools show the time by default.
func NewProfileBuilder(comment, count, nanoseconds string) *ProfileBuilder {
	return &ProfileBuilder{functions: make(map[string]*profile.Location), out: &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: count, Unit: "count"}, {Type: nanoseconds, Unit: "nanoseconds"}},
		DefaultSampleType: nanoseconds,
		Comments:          []string{comment},
	}}
}

// Add adds a sample. Its stack starts with the innermost function.
func (b *ProfileBuilder) Add(count, nanoseconds int64, labels map[string][]string, stack []string) {
	s := &profile.Sample{Value: []int64{count, nanoseconds}, Label: labels}
	for _, name := range stack {
		s.Location = append(s.Location, b.location(name))
	}
	b.out.Sample = append(b.out.Sample, s)
}

// Write writes the profile, gzipped. It returns an error if the profile is invalid.
func (b *ProfileBuilder) Write(w io.Writer) error {
	if err := b.out.CheckValid(); err != nil {
		return err
	}
	return b.out.Write(w)
}

// addFrame adds the sample of frame i, unless both its values are 0.
func (b *ProfileBuilder) addFrame(p *Profile, i int) {
	count, own := int64(0), p.Nanos(i)
	if i == 0 {
		count = int64(p.Count)
	}
	if count == 0 && own <= 0 {
		return
	}
	var stack []string
	for ; i >= 0; i = p.Frames[i].Parent { // leaf first
		stack = append(stack, p.Frames[i].Name)
	}
	b.Add(count, own, map[string][]string{"request_type": {p.Name}}, stack)
}

// location returns the location of the function called name, creating it on first use.
func (b *ProfileBuilder) location(name string) *profile.Location {
	if l, ok := b.functions[name]; ok {
		return l
	}
	id := uint64(len(b.out.Function) + 1)
	f := &profile.Function{ID: id, Name: name, SystemName: name}
	l := &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
	b.out.Function, b.out.Location = append(b.out.Function, f), append(b.out.Location, l)
	b.functions[name] = l
	return l
}
