package report

import (
	"io"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Limits on the page about waits.
const (
	pagePrograms  = 10
	pageProcesses = 50
	pageThreads   = 200 // threads per process
	pageStacks    = 50
)

// WaitsHTML writes r, which was measured with thresholds, as one self-contained page.
func WaitsHTML(w io.Writer, r *waits.Report, thresholds waits.Thresholds) error {
	p := waitsPage{r, thresholds}
	title := "waits of " + processCount(len(r.Processes))
	if len(r.Processes) == 1 {
		title = "waits of " + clean(r.Processes[0].Comm)
	}
	return document(w, title, p.header(title), h.Main(lines(p.processes(), p.longest(), p.stacks())), p.footer())
}

type waitsPage struct {
	*waits.Report
	thresholds waits.Thresholds
}

func (p *waitsPage) header(title string) g.Node {
	return h.Header(lines(
		h.H1(g.Text("Sibyl: "+title)),
		p.programs(),
		quiet(p.From.UTC().Format("2006-01-02 15:04:05")+" UTC, "+units.Duration(p.Duration)+"; "+costText(p.Cost)+"."),
		quiet(p.joins()),
		quiet(endedText(p.Ended)),
		quiet(lossText(&p.Losses)),
	))
}

// programs returns a sentence about each of the first programs.
func (p *waitsPage) programs() g.Node {
	programs := p.Programs()
	shown := programs[:min(len(programs), pagePrograms)]
	return lines(each(shown, func(x *waits.Program) g.Node { return h.P(g.Text(clean(programText(x)))) }),
		more(len(programs)-len(shown), "programs"),
		each(p.Throttles, func(x *waits.Throttle) g.Node { return h.P(g.Text(clean(throttleText(x)))) }))
}

func (p *waitsPage) joins() string {
	if p.Joins == nil {
		return ""
	}
	return joinText(p.Joins)
}

func (p *waitsPage) footer() g.Node {
	return h.Footer(g.Text("Made by "), h.B(g.Text("sibyl agent kernel")),
		g.Text(". All classes add up to the time of the threads. CPU wait: time on "+
			"run queues after the wake-ups, which the class runqueue sums up. Stacks are sampled."))
}

func (p *waitsPage) processes() g.Node {
	shown := p.Processes[:min(len(p.Processes), pageProcesses)]
	nodes := make(g.Group, len(shown))
	for i := range shown {
		nodes[i] = p.process(&shown[i], i == 0)
	}
	return lines(lines(nodes...), more(len(p.Processes)-len(shown), "processes"))
}

func (p *waitsPage) process(x *waits.ProcessReport, open bool) g.Node {
	threads := units.Plural(len(x.Threads), "thread")
	shown := x.Threads[:min(len(x.Threads), pageThreads)]
	return h.Details(
		h.Class("card"), g.If(open, g.Attr("open")),
		lines(
			h.Summary(g.Text(clean(x.Comm)+" ("+strconv.FormatUint(uint64(x.PID), 10)+") "),
				h.Span(h.Class("quiet"), g.Text(threads+", "+units.Nanos(float64(x.Totals.Ns()))+" of thread time"))),
			p.classes(x),
			section("Threads", scrollable(h.Table(lines(
				h.THead(h.Tr(column("thread"), numbers("ID", "on CPU", "waiting for a CPU"), column("longest wait"),
					numbers("total", "longest", "too long"))),
				h.TBody(each(shown, threadRow)),
			)))),
			more(len(x.Threads)-len(shown), "threads"),
		),
	)
}

// classes returns the table of x's classes, with the system calls of each.
func (p *waitsPage) classes(x *waits.ProcessReport) g.Node {
	var rows g.Group
	all := float64(max(x.Totals.Ns(), 1))
	for _, c := range byTime(&x.Totals) {
		rows = append(rows, p.row(h.B(g.Text(c.String())), &x.Totals[c], all))
		for i := range x.Calls {
			if name := p.Syscalls[x.Calls[i].Syscall]; x.Calls[i].Class == c && name != "" {
				rows = append(rows, p.row(g.Text("\u2003"+name), &x.Calls[i].Total, all))
			}
		}
	}
	return scrollable(h.Table(lines(
		h.THead(h.Tr(column("class"), numbers("share"), h.Td(),
			numbers("count", "total", "longest", "CPU wait", "too long"))),
		h.TBody(lines(rows...)),
	)))
}

func (p *waitsPage) row(name g.Node, x *waits.Total, all float64) g.Node {
	share := float64(x.TotalNs) / all
	return h.Tr(
		h.Th(h.Scope("row"), name), cells("n", units.Percent(share)),
		h.Td(h.Class("whisker"), h.Aria("hidden", "true"), g.El("i", style(number{"v", 100 * share}))),
		cells("n", units.Count(int(x.Count)), units.Nanos(float64(x.TotalNs)), units.Nanos(float64(x.MaxNs)),
			units.Nanos(float64(x.RunqNs)), units.Count(int(x.Over))),
	)
}

func threadRow(t *waits.ThreadReport) g.Node {
	id, name := strconv.FormatUint(uint64(t.TID), 10), clean(t.Comm)
	if t.TID == 0 {
		id, name = "", "further threads"
	}
	all, over := float64(max(t.Totals.Ns(), 1)), uint64(0)
	longest := waits.Other
	for c := range waits.Class(waits.NumClasses) {
		over += t.Totals[c].Over
		if c > waits.RunQueue && t.Totals[c].TotalNs > t.Totals[longest].TotalNs {
			longest = c
		}
	}
	cpu := float64(t.Totals[waits.Preempted].TotalNs + t.Totals[waits.RunQueue].TotalNs)
	x := &t.Totals[longest]
	reason := "–"
	if x.TotalNs > 0 {
		reason = longest.String()
	}
	return h.Tr(
		h.Th(h.Scope("row"), g.Text(name)),
		cells("n", id, units.Percent(float64(t.Totals[waits.OnCPU].TotalNs)/all), units.Percent(cpu/all)),
		h.Td(g.Text(reason)),
		cells("n", units.Nanos(float64(x.TotalNs)), units.Nanos(float64(x.MaxNs)), units.Count(int(over))),
	)
}

// longest returns the table of the longest intervals above the thresholds, or nil if there are no such intervals.
func (p *waitsPage) longest() g.Node {
	if len(p.Longest) == 0 {
		return nil
	}
	return lines(h.H2(g.Text("Longest waits above their thresholds")), h.Div(h.Class("card"), scrollable(h.Table(lines(
		h.THead(h.Tr(column("reason"), numbers("wait", "threshold", "CPU wait"), column("thread"),
			column("stack, innermost first"))),
		h.TBody(each(p.Longest, func(l *waits.Longest) g.Node {
			reason, threshold := p.Reason(l.Class, l.Syscall), p.thresholds[l.Class]
			if !l.WaitTooLong {
				reason, threshold = "runqueue after "+reason, p.thresholds[waits.RunQueue]
			}
			return h.Tr(
				h.Th(h.Scope("row"), g.Text(reason)),
				cells("n", units.Nanos(float64(l.WaitNs)), units.Nanos(float64(threshold)),
					units.Nanos(float64(l.RunqNs))),
				h.Td(g.Text(clean(l.Comm.String())+" ("+strconv.FormatUint(uint64(l.TID), 10)+")")),
				h.Td(path(l.Frames)),
			)
		})),
	)))))
}

// path returns the frames of a stack as a list.
func path(frames []string) g.Node {
	return h.Div(h.Class("path"), g.Map(frames, func(name string) g.Node { return span(clean(name)) }))
}

// clean returns name with control characters and invalid UTF-8 replaced, because a process can choose any name.
func clean(name string) string { return terminal.Printable(strings.ToValidUTF8(name, "\uFFFD")) }

// stacks returns the table of the stacks with the longest times, or nil if there are no stacks.
func (p *waitsPage) stacks() g.Node {
	if len(p.Stacks) == 0 {
		return nil
	}
	shown := p.Stacks[:min(len(p.Stacks), pageStacks)]
	return lines(
		h.H2(g.Text("Sampled stacks, longest time first")),
		h.Div(h.Class("card"), scrollable(h.Table(lines(
			h.THead(h.Tr(column("reason"), numbers("time", "samples"), column("process"),
				column("stack, innermost first"))),
			h.TBody(each(shown, func(s *waits.Stack) g.Node {
				return h.Tr(
					h.Th(h.Scope("row"), g.Text(p.Reason(s.Class, s.Syscall))),
					cells("n", units.Nanos(float64(s.TotalNs)), units.Count(int(s.Count))),
					h.Td(g.Text(clean(s.Comm)+" ("+strconv.FormatUint(uint64(s.PID), 10)+")")), h.Td(path(s.Frames)),
				)
			})),
		)))),
	)
}
