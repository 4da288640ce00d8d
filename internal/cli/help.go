package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// explainFlag returns a clearer error for err, an error from parsing flags. The error contains the name of the flag,
// its value and the expected value, or suggests a flag with a similar name.
func explainFlag(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedName() != "" {
		if near := nearestFlag(c, unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
		return err
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	cause := invalid.Unwrap().Error()
	if _, number := errors.AsType[*strconv.NumError](err); number {
		cause = wantedNumbers[invalid.GetFlag().Value.Type()]
	} else if invalid.GetFlag().Value.Type() == "duration" && strings.HasPrefix(cause, "time: ") {
		cause = "want a duration, like 1s, 250ms or 1h30m"
	}
	return fmt.Errorf("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), cause)
}

// wantedNumbers describes the values of flags by type of flag.
var wantedNumbers = map[string]string{
	"int": "want a whole number", "int64": "want a whole number",
	"uint": "want a whole number of at least 0", "uint32": "want a whole number of at least 0",
	"uint64": "want a whole number of at least 0", "uintSlice": "want whole numbers of at least 0, like 7 or 7,8",
	"float64": "want a number", "bool": "want true or false",
}

// nearestFlag returns the flag of c whose name is most similar to word, or "" if all names differ from word in more
// than a third of its letters.
func nearestFlag(c *cobra.Command, word string) string {
	best, least := "", len(word)/3+1
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := levenshtein.ComputeDistance(word, f.Name); d < least && !f.Hidden {
			best, least = f.Name, d
		}
	})
	return best
}

// FlagGroup is the key of the annotation that holds the title under which help lists a flag.
const FlagGroup = "sibyl-group"

// flagGroup holds the flags that help lists under one title.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// groupsOf returns the groups of the flags of c in the order of their definition, followed by the flags without a
// title.
func groupsOf(c *cobra.Command) []flagGroup {
	var groups []flagGroup
	rest := newFlagGroup("Flags")
	c.Flags().SortFlags = false
	c.Flags().VisitAll(func(f *pflag.Flag) {
		title := f.Annotations[FlagGroup]
		if len(title) == 0 {
			rest.flags.AddFlag(f)
			return
		}
		if n := len(groups); n == 0 || groups[n-1].title != title[0] {
			groups = append(groups, newFlagGroup(title[0]))
		}
		groups[len(groups)-1].flags.AddFlag(f)
	})
	return append(groups, rest)
}

func newFlagGroup(title string) flagGroup {
	flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
	flags.SortFlags = false
	return flagGroup{title, flags}
}

// helpWidth is the width of the lines of help.
const helpWidth = 120

// help prints the description of a command, with its paragraphs wrapped, and its usage.
func help(c *cobra.Command, _ []string) {
	paragraphs := strings.Split(cmp.Or(c.Long, c.Short), "\n\n")
	for i, p := range paragraphs {
		if !strings.Contains(p, "\n ") && !strings.HasPrefix(p, " ") { // no example
			paragraphs[i] = strings.TrimSpace(terminal.Style{Width: helpWidth}.Wrap(p, 0))
		}
	}
	fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", strings.Join(paragraphs, "\n\n"), c.UsageString())
}

// usage prints the usage of a command: its subcommands, and its flags in groups.
func usage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nAvailable Commands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	for _, g := range groupsOf(c) {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(helpWidth))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}
