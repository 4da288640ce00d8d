package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// conditions lists the time, the machine and the command of a measurement.
type conditions struct {
	command []string // of sibylbench
	begin   time.Time
	cpu     string
	cores   int
	load    string // load average of the minute before the start
}

// currentConditions returns the conditions of a command that starts now.
func currentConditions(command []string) (*conditions, error) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, fmt.Errorf("identify the machine: %w", err)
	}
	averages, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, fmt.Errorf("read the load of the machine: %w", err)
	}
	load, _, _ := strings.Cut(string(averages), " ")
	return &conditions{
		command: command,
		begin:   time.Now(),
		cpu:     cpuModel(string(info)),
		cores:   runtime.NumCPU(),
		load:    load,
	}, nil
}

// cpuModel returns the name of the processor from /proc/cpuinfo.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if key, name, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(name)
		}
	}
	return "unknown processor"
}

// String returns the line above the figures.
func (c *conditions) String() string {
	return fmt.Sprintf("`sibylbench %s`, %s, %s, %s, load average %s at the start:",
		strings.Join(c.command, " "), c.begin.Format("2 January 2006"),
		c.cpu, units.Plural(c.cores, "core"), c.load)
}
