package main

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/cli"

	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
)

// caseSet writes a case set with one case, in which requests of a service take 50 % longer, and returns its directory.
func caseSet(t *testing.T) string {
	t.Helper()
	var texts []string
	for i := range 100 {
		at, end := 1000*i, 100
		if i >= 80 {
			end = 150
		}
		texts = append(texts, fmt.Sprintf("%x shop \"GET /cart\" server %d..%d", i+1, at, at+end))
	}
	request, err := tracegen.FromText(texts...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string]string{
		recorded.TracesName: string(request) + "\n",
		recorded.CasesName: `{"name": "a<b", "fault": "slow", "start_unix_nano": 80000, "end_unix_nano": "100000",` +
			`"target": {"service": "shop"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLocalizeRecorded(t *testing.T) {
	dir := caseSet(t)
	for output, check := range map[string]func(string) error{
		"table": func(s string) error {
			if !strings.Contains(s, "100 %") || !strings.Contains(s, "shop GET /cart") ||
				!strings.Contains(s, "told     first 100 %") {
				return errors.New("want the labelled service first")
			}
			return nil
		},
		"json": func(s string) error {
			var r recorded.Report
			err := json.Unmarshal([]byte(s), &r)
			if err == nil && (r.Top1 != 1 || r.Cases[0].RankService == nil || *r.Cases[0].RankService != 1) {
				err = errors.New("want the labelled service first")
			}
			return err
		},
		"csv": func(s string) error {
			_, err := csv.NewReader(strings.NewReader(s)).ReadAll()
			return err
		},
		"svg": wellFormed,
	} {
		got := sibylbench(t, "localize", "--recorded", dir, "-o", output)
		if got.code != cli.ExitOK || !strings.Contains(got.err, "not noticed") { // too few healthy traces
			t.Fatalf("-o %s: exit code %d, %s", output, got.code, got.err)
		}
		if err := check(got.out); err != nil {
			t.Errorf("-o %s: %v in\n%s", output, err, got.out)
		}
	}
}

func TestLocalizeChoose(t *testing.T) {
	dir := caseSet(t)
	for output, check := range map[string]func(string) error{
		"table": func(s string) error {
			for _, want := range []string{"with spans hidden", "random", "3 of 1 ", "false alarms: 0"} {
				if !strings.Contains(strings.ToLower(s), want) {
					return fmt.Errorf("want %q", want)
				}
			}
			return nil
		},
		"json": func(s string) error {
			var r recorded.Report
			err := json.Unmarshal([]byte(s), &r)
			if err == nil && (r.Top1 != 1 || r.Choice == nil || len(r.Choice.Strategies) != 2 ||
				r.Choice.Baseline != recorded.Entries) {
				err = errors.New("want results with and without --choose")
			}
			return err
		},
		"csv": func(s string) error {
			lines, err := csv.NewReader(strings.NewReader(s)).ReadAll()
			if err == nil && len(lines) != 3 {
				err = errors.New("want a header and a line for each strategy")
			}
			return err
		},
		"svg": wellFormed,
	} {
		got := sibylbench(t, "localize", "--recorded", dir, "--choose", "--baseline", "entries",
			"--strategies", "random", "-o", output)
		if got.code != cli.ExitOK || got.err != "" {
			t.Fatalf("-o %s: exit code %d, %s", output, got.code, got.err)
		}
		if err := check(got.out); err != nil {
			t.Errorf("-o %s: %v in\n%s", output, err, got.out)
		}
	}
}

// wellFormed returns an error if s is not well-formed XML.
func wellFormed(s string) error {
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestLocalizeSimulated(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a simulation")
	}
	for _, output := range []string{"table", "json", "csv", "svg"} {
		got := sibylbench(t, "localize", "--seeds", "1", "--faults", "disk", "--tracepoints", "60",
			"--strategies", "adaptive,flat", "-o", output)
		if got.code != cli.ExitOK || !strings.Contains(got.out, "disk") && output != "svg" {
			t.Errorf("-o %s: exit code %d, %s\n%s", output, got.code, got.err, got.out)
		}
		if output == "svg" {
			if err := wellFormed(got.out); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestLocalizeUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--sim --recorded x":       "either --sim or",
		"--sim=false":              "nothing to do",
		"--choose":                 "needs --recorded",
		"--recorded=":              "--recorded is empty",
		"--recorded x --learn -1s": "must not be negative",
		"--faults nonsense":        "no fault is named",
		"--strategies none":        "no strategy is named",
		"-o page":                  "table, json, csv, svg",
		"more":                     "takes no arguments",
		"--recorded nowhere1":      recorded.CasesName,
	} {
		got := sibylbench(t, append([]string{"localize"}, strings.Fields(args)...)...)
		code := cli.ExitUsage
		if strings.HasPrefix(args, "--recorded nowhere") {
			code = cli.ExitError
		}
		if got.code != code || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", args, got.code, got.err, code, want)
		}
	}
}
