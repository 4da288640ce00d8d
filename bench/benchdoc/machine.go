package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// circumstances say when, where and how something was measured.
type circumstances struct {
	command []string // of sibyl
	begin   time.Time
	cpu     string
	cores   int
	load    string // average over the minute before it began
}

// look fills in what the machine is and does.
func (c *circumstances) look() error {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return fmt.Errorf("see what machine this is: %w", err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return fmt.Errorf("see what the machine does: %w", err)
	}
	c.cpu, c.cores = model(string(info)), runtime.NumCPU()
	c.load, _, _ = strings.Cut(string(load), " ")
	return nil
}

// model returns the name of the processor.
func model(info string) string {
	for line := range strings.Lines(info) {
		if key, name, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(name)
		}
	}
	return "an unnamed processor"
}

// String returns the line above the figures.
func (c *circumstances) String() string {
	return fmt.Sprintf("`sibylbench %s`, %s, %s, %s, load average %s at the start:", strings.Join(c.command, " "), c.begin.Format("2 January 2006"),
		c.cpu, units.Plural(c.cores, "core"), c.load)
}
