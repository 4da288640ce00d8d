package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

// version identifies a build.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // revision of the source; empty if the build did not record it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns all fields on one line.
func (v version) String() string {
	return fmt.Sprintf("sibyl %s %s %s %s", v.Version, v.Revision, v.Go, v.Platform)
}

// described is the output of `git describe`, set by the linker, or empty. We need it because Go records no version in a
// workspace or a worktree.
var described string

func versionCommand(p *process) *cobra.Command {
	output := cli.NewChoice("table", "json")
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  sibyl version -o json",
		Args:    cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if output.Value == "json" {
				return json.NewEncoder(p.out).Encode(v)
			}
			_, err := fmt.Fprintln(p.out, v)
			return err
		},
	}
	output.Flag(c, "output", "o", "format")
	return c
}

func buildVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	if described != "" {
		v.Version, v.Revision = described, cmp.Or(v.Revision, described)
	}
	return v
}
