package describe

import (
	"io"

	"github.com/google/pprof/profile"
)

// Pprof writes the critical paths of request types as a gzipped pprof profile: one sample per calling context with time
// of its own, with its exclusive nanoseconds over all requests and the label request_type. The sample type requests
// counts requests at their entry.
func Pprof(w io.Writer, profiles []Profile) error {
	b := pprofBuilder{functions: make(map[string]*profile.Location), out: &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "requests", Unit: "count"},
			{Type: "exclusive", Unit: "nanoseconds"},
		},
		DefaultSampleType: "exclusive",
		Comments:          []string{"critical path by calling context; values are exclusive times over all requests"},
	}}
	for i := range profiles {
		for k := range profiles[i].Frames {
			b.add(&profiles[i], k)
		}
	}
	if err := b.out.CheckValid(); err != nil {
		return err
	}
	return b.out.Write(w)
}

type pprofBuilder struct {
	out       *profile.Profile
	functions map[string]*profile.Location
}

// add adds the sample of frame i, unless both of its values are 0.
func (b *pprofBuilder) add(p *Profile, i int) {
	s := &profile.Sample{Value: []int64{0, p.Nanos(i)}, Label: map[string][]string{"request_type": {p.Name}}}
	if i == 0 {
		s.Value[0] = int64(p.Count)
	}
	if s.Value[0] == 0 && s.Value[1] <= 0 {
		return
	}
	for ; i >= 0; i = p.Frames[i].Parent { // leaf first
		s.Location = append(s.Location, b.location(p.Frames[i].Name))
	}
	b.out.Sample = append(b.out.Sample, s)
}

// location returns the location of the function called name, and creates it on first use.
func (b *pprofBuilder) location(name string) *profile.Location {
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
