package offline

import (
	"context"
	"errors"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// ReadNormal reads normal traces from paths and returns their profile with the table of their names. It uses only the
// fields Input and Path of options. It returns an error if no trace has a root, or if the options allow critical paths
// to overlap.
func ReadNormal(ctx context.Context, paths []string,
	options Options,
) (profile *onetrace.Profile, table *trace.Table, err error) {
	if options.Path.OverlapTolerance > 0 {
		return nil, nil, errOverlap
	}
	in, err := file.Read(ctx, paths, options.Input)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	profile = onetrace.NewProfile(in.Table)
	extractor := critpath.NewExtractor(options.Path)
	for t, err := range in.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
		profile.Add(extractor.Extract(t))
	}
	if profile.Traces() == 0 {
		return nil, nil, errors.New(
			"no trace has a root span, so there is nothing to compare with: name files with traces of healthy requests")
	}
	return profile, in.Table, nil
}
