package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// shownSyscalls is the maximum number of system calls per class in the table.
const shownSyscalls = 3

// Widths of columns of the table of waits.
const (
	reasonWidth = 24
	countWidth  = 11
	timeWidth   = 9
	idWidth     = 9
)

// WaitsTable writes r for a terminal: the classes of each process, its threads, and the longest intervals above the
// thresholds t. It shows at most `top` processes, threads and intervals, or all if `top` is 0.
func WaitsTable(w io.Writer, r *waits.Report, t waits.Thresholds, style terminal.Style, top int) error {
	out := waitsTable{table{style: style, top: top}, r, t}
	out.programs()
	out.heading()
	working, idle := out.working()
	for _, p := range working[:out.shown(len(working))] {
		out.process(p)
	}
	if left := len(working) - out.shown(len(working)); left > 0 {
		out.printf("\n%s\n", style.Paint(terminal.Dim, "… and "+processCount(left)+" more (--top 0 shows all)"))
	}
	if idle != "" {
		out.printf("\n%s", style.Wrap(idle, 0))
	}
	out.longest()
	_, err := io.WriteString(w, out.out.String())
	return err
}

type waitsTable struct {
	table
	*waits.Report
	thresholds waits.Thresholds
}

func (t *waitsTable) heading() {
	threads := 0
	for i := range t.Processes {
		threads += len(t.Processes[i].Threads)
	}
	t.printf("%s, %s in %s\n",
		processCount(len(t.Processes)), units.Plural(threads, "thread"), units.Duration(t.Duration))
	t.printf("%s", t.style.Wrap(costText(t.Cost), 0))
	if t.Joins != nil {
		t.printf("%s", t.style.Wrap(joinText(t.Joins), 0))
	}
	if text := endedText(t.Ended); text != "" {
		t.printf("%s", t.style.Wrap(text, 0))
	}
	if text := lossText(&t.Losses); text != "" {
		t.printf("%s\n", t.style.Paint(terminal.Yellow, strings.TrimSuffix(t.style.Wrap(text, 0), "\n")))
	}
}

// programs writes a sentence for each program.
func (t *waitsTable) programs() {
	programs := t.Programs()
	for i := range programs[:t.shown(len(programs))] {
		t.printf("%s", t.style.Wrap(terminal.Printable(programText(&programs[i])), 0))
	}
	t.more(len(programs)-t.shown(len(programs)), "program", "")
	for i := range t.Throttles[:t.shown(len(t.Throttles))] {
		t.printf("%s", t.style.Wrap(terminal.Printable(throttleText(&t.Throttles[i])), 0))
	}
	t.printf("\n")
}

// throttleText returns a sentence about a CPU limit, with the remedy.
func throttleText(x *waits.Throttle) string {
	return "The CPU limit of cgroup " + x.Cgroup + " stopped its threads in " + units.Count(int(x.Stopped)) + " of " +
		units.Plural(int(x.Periods), "period") + ", for " + units.Nanos(float64(x.Ns)) + " in all. In this time " +
		"they waited for the limit, not for other threads: raise it, or use less CPU."
}

// shownReasons is the maximum number of reasons in the sentence about a program.
const shownReasons = 3

// programText returns a sentence that says which part of p worked, and what its threads spent their time on.
func programText(p *waits.Program) string {
	name := p.Comm
	if p.PID != 0 {
		name += " (" + strconv.FormatUint(uint64(p.PID), 10) + ")"
	}
	var who string
	switch {
	case p.Threads == 0 && p.Processes == 1:
		who = name + " was idle: it"
	case p.Threads == 0:
		who = "All " + processCount(p.Processes) + " of " + name + " were idle: they"
	case p.Processes == 1:
		who = "The " + units.Plural(p.Threads, "working thread") + " of " + name
	default:
		who = units.Count(p.Working) + " of the " + processCount(p.Processes) + " of " + name + " worked: they"
	}
	return who + " spent " + reasonsText(p) + "."
}

// reasonsText returns the shares of the main reasons of p. Classes with the same text, and so the same remedy, count
// together. Time in which threads waited for work is left out.
func reasonsText(p *waits.Program) string {
	ns := make(map[string]uint64)
	idle, left := uint64(0), p.Totals
	for _, n := range p.Named {
		n.Ns = min(n.Ns, left[n.Class].TotalNs)
		left[n.Class].TotalNs -= n.Ns
		if n.Idle {
			idle += n.Ns
		} else {
			ns["waiting for "+n.Name] += n.Ns
		}
	}
	for _, c := range byTime(&left) {
		text := "running"
		if c != waits.OnCPU {
			text = detect.Waiting(c.String())
		}
		ns[text] += left[c].TotalNs
	}
	texts := slices.SortedFunc(maps.Keys(ns), func(a, b string) int {
		return cmp.Or(cmp.Compare(ns[b], ns[a]), cmp.Compare(a, b))
	})
	all := float64(max(p.Totals.Ns(), 1))
	busy := all - float64(idle)
	var parts []string
	for i, text := range texts[:min(len(texts), shownReasons)] {
		if share := float64(ns[text]) / max(busy, 1); share >= 0.01 || i == 0 {
			parts = append(parts, units.Percent(share)+" of the time "+text)
		}
	}
	if idle > 0 {
		parts[0] += " (without " + units.Percent(float64(idle)/all) + " of waiting for work)"
	}
	return strings.Join(parts, ", ")
}

// working returns the processes that worked, and a text about the others. If none worked, it returns all.
func (t *waitsTable) working() (working []*waits.ProcessReport, idle string) {
	var others []*waits.ProcessReport
	var longest [waits.NumClasses]int
	for i := range t.Processes {
		p := &t.Processes[i]
		if p.Totals.Works() {
			working = append(working, p)
			continue
		}
		others = append(others, p)
		longest[byTime(&p.Totals)[0]]++
	}
	if len(working) == 0 || len(others) == 0 {
		return append(working, others...), ""
	}
	return working, processCount(len(others)) + " idle: " + counts(&longest)
}

// counts returns a text with the numbers of each class.
func counts(n *[waits.NumClasses]int) string {
	var parts []string
	for c := range waits.Class(waits.NumClasses) {
		if n[c] > 0 {
			parts = append(parts, c.String()+" "+units.Count(n[c]))
		}
	}
	return strings.Join(parts, ", ")
}

// endedText returns a text saying that the processes pids ended before the end of the report, or "" if pids is empty.
func endedText(pids []uint32) string {
	if len(pids) == 0 {
		return ""
	}
	texts := make([]string, len(pids))
	for i, pid := range pids {
		texts[i] = strconv.FormatUint(uint64(pid), 10)
	}
	return "ended meanwhile: process " + strings.Join(texts, ", ")
}

// processCount returns n with the noun "process" or "processes".
func processCount(n int) string {
	if n == 1 {
		return "1 process"
	}
	return units.Count(n) + " processes"
}

// costText returns a text about the cost of the probes.
func costText(c waits.Cost) string {
	if c.NsPerHit == 0 {
		return "cost of the probes: unknown"
	}
	return "cost of the probes: " + units.Count(int(c.Hits)) + " hits of " + units.Nanos(c.NsPerHit) + ", " +
		units.Share(c.CPUShare) + " of a CPU"
}

// joinText returns a text about the waits above a threshold, with the number that were joined to spans, and the numbers
// of the others by reason.
func joinText(j *waits.Joins) string {
	text := "sent below their spans: " + units.Plural(int(j.Exact), "wait") + " above a threshold"
	var parts []string
	for reason, n := range j.Missing {
		if n > 0 {
			parts = append(parts, units.Count(int(n))+" "+joinReasons[reason])
		}
	}
	if len(parts) > 0 {
		text += "; not sent: " + strings.Join(parts, ", ")
	}
	return text
}

var joinReasons = [waits.NumReasons]string{
	waits.MissingNotSought:   "of processes whose threads have no known spans",
	waits.MissingNoGoroutine: "of threads of Go's runtime",
	waits.MissingNoSpan:      "of threads that worked for no span",
	waits.MissingUnreadable:  "of processes whose memory could not be read (swapped out, or not where the agent looks)",
	waits.MissingUnsampled:   "of spans that are not sampled",
	waits.MissingInvalid:     "with broken labels",
	waits.MissingNoService:   "of processes without a service name",
	waits.MissingEnded:       "of processes that ended too early",
}

// lossText returns a text that lists the losses in l with causes and remedies, or "" if nothing was lost.
func lossText(l *waits.Losses) string {
	var parts []string
	for _, x := range []struct {
		n          uint64
		noun, text string
	}{
		{l.Sums, "interval", "(too many threads and system calls: raise --sums)"},
		{l.Events, "single interval", "(they came faster than they are read)"},
		{l.Limited, "single interval", "above the rate of 1,000 per process and second; the sums have them"},
		{l.Threads, "time slice", "of threads (the kernel had no memory for their state)"},
		{l.Stacks, "stack", "(their slots were taken, or the memory could not be read)"},
		{l.Children, "target", "(more than 4,096 processes at a time)"},
		{l.Missed, "run", "of the probes (nested in another one)"},
		{l.Switches, "part", "of the time of threads (the kernel did not report that they left a CPU)"},
		{l.Gaps, "part", "of the time (this program was stopped for more than ten seconds)"},
	} {
		if x.n > 0 {
			parts = append(parts, units.Plural(int(x.n), x.noun)+" "+x.text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "missing: " + strings.Join(parts, "; ")
}

// process writes the classes of p, the classes that exceeded their thresholds, and the threads of p.
func (t *waitsTable) process(p *waits.ProcessReport) {
	t.printf("\n%s  %s, %s of thread time\n",
		t.style.Paint(terminal.Bold, fmt.Sprintf("%s (%d)", terminal.Printable(p.Comm), p.PID)),
		units.Plural(len(p.Threads), "thread"), units.Nanos(float64(p.Totals.Ns())))
	t.printf("%s\n", t.style.Paint(terminal.Dim,
		"  "+terminal.PadRight("class", reasonWidth)+right("count", countWidth)+right("total", timeWidth)+
			right("share", timeWidth)+right("longest", timeWidth)+right("CPU wait", timeWidth)+
			right("too long", timeWidth)))
	for _, c := range byTime(&p.Totals) {
		t.class(p, c)
	}
	t.groups(&p.Totals)
	t.reasons(p)
	t.threads(p)
}

// byTime returns the classes with intervals in totals, longest time first.
func byTime(totals *waits.Totals) []waits.Class {
	var classes []waits.Class
	for c := range waits.Class(waits.NumClasses) {
		if totals[c].Count > 0 || totals[c].TotalNs > 0 {
			classes = append(classes, c)
		}
	}
	sorting.SliceStable(classes,
		func(a, b waits.Class) int { return cmp.Compare(totals[b].TotalNs, totals[a].TotalNs) })
	return classes
}

func (t *waitsTable) total(indent, name string, x *waits.Total, all uint64) {
	line := indent + terminal.PadRight(terminal.Shorten(name, reasonWidth+2-len(indent)), reasonWidth+2-len(indent)) +
		right(units.Count(int(x.Count)), countWidth) + right(units.Nanos(float64(x.TotalNs)), timeWidth) +
		right(units.Percent(float64(x.TotalNs)/float64(max(all, 1))), timeWidth) +
		right(units.Nanos(float64(x.MaxNs)), timeWidth)
	runq, over := "", ""
	if x.RunqNs > 0 {
		runq = units.Nanos(float64(x.RunqNs))
	}
	if x.Over > 0 {
		over = units.Count(int(x.Over))
	}
	t.printf("%s\n",
		strings.TrimRight(line+right(runq, timeWidth)+t.style.Paint(terminal.Red, right(over, timeWidth)), " "))
}

// class writes the class c of p and the system calls in the class. If there is only one system call, class writes it on
// the line of the class.
func (t *waitsTable) class(p *waits.ProcessReport, c waits.Class) {
	var calls []*waits.Call
	for i := range p.Calls {
		if call := &p.Calls[i]; call.Class == c && t.Syscalls[call.Syscall] != "" {
			calls = append(calls, call)
		}
	}
	if len(calls) == 1 && calls[0].Total == p.Totals[c] {
		t.total("  ", t.Reason(c, calls[0].Syscall), &p.Totals[c], p.Totals.Ns())
		return
	}
	t.total("  ", c.String(), &p.Totals[c], p.Totals.Ns())
	for _, call := range calls[:min(len(calls), shownSyscalls)] {
		t.total("    ", t.Syscalls[call.Syscall], &call.Total, p.Totals.Ns())
	}
}

// groups writes the shares of the class groups in totals.
func (t *waitsTable) groups(totals *waits.Totals) {
	var sums [waits.NumGroups]uint64
	for c := range totals {
		sums[waits.Class(c).Group()] += totals[c].TotalNs
	}
	var parts []string
	for g, ns := range sums {
		if ns > 0 {
			parts = append(parts, waits.Group(g).String()+" "+units.Percent(float64(ns)/float64(totals.Ns())))
		}
	}
	t.printf("%s", t.style.Wrap("in all: "+strings.Join(parts, ", "), 2))
}

// reasons writes the classes of p that exceeded their thresholds, and how often they did.
func (t *waitsTable) reasons(p *waits.ProcessReport) {
	var parts []string
	for c := range p.Totals {
		if x := &p.Totals[c]; x.Over > 0 {
			parts = append(parts,
				fmt.Sprintf("%s %s from %s on, up to %s", waits.Class(c), units.Plural(int(x.Over), "time"),
					units.Nanos(float64(t.thresholds[c])), units.Nanos(float64(x.MaxNs))))
		}
	}
	if len(parts) > 0 {
		t.printf("%s", t.style.Wrap("too long: "+strings.Join(parts, "; "), 2))
	}
}

// threads writes the main classes of each thread in p. Threads that waited throughout, like the idle threads of a pool,
// share a line.
func (t *waitsTable) threads(p *waits.ProcessReport) {
	if len(p.Threads) < 2 {
		return
	}
	var active []*waits.ThreadReport
	var idle [waits.NumClasses]int
	for i := range p.Threads {
		if c, ok := throughout(&p.Threads[i].Totals); ok {
			idle[c]++
		} else {
			active = append(active, &p.Threads[i])
		}
	}
	t.printf("%s\n", t.style.Paint(terminal.Dim,
		"  "+terminal.PadRight("thread", reasonWidth)+right("ID", idWidth)+"  longest classes"))
	for _, x := range active[:t.shown(len(active))] {
		t.thread(x)
	}
	t.more(len(active)-t.shown(len(active)), "thread", "  ")
	if left := len(p.Threads) - len(active); left > 0 {
		t.printf("%s", t.style.Wrap(units.Plural(left, "thread")+" in a single wait throughout: "+counts(&idle), 2))
	}
}

// throughout returns the class that the thread with the totals x waited in all the time. ok is false if the thread ran,
// waited in several classes, or waited in one class more than once.
func throughout(x *waits.Totals) (c waits.Class, ok bool) {
	classes := byTime(x)
	if len(classes) != 1 || x[classes[0]].Count != 1 || classes[0] <= waits.RunQueue {
		return 0, false
	}
	return classes[0], true
}

func (t *waitsTable) thread(x *waits.ThreadReport) {
	id, name := strconv.FormatUint(uint64(x.TID), 10), terminal.Printable(x.Comm)
	if x.TID == 0 {
		id, name = "", "further threads"
	}
	var parts []string
	classes := byTime(&x.Totals)
	for _, c := range classes[:min(len(classes), 4)] {
		parts = append(parts, c.String()+" "+units.Percent(float64(x.Totals[c].TotalNs)/float64(max(x.Totals.Ns(), 1))))
	}
	t.printf("  %s%s  %s\n", terminal.PadRight(terminal.Shorten(name, reasonWidth), reasonWidth), right(id, idWidth),
		strings.Join(parts, ", "))
}

// longest writes the longest intervals above the thresholds, with their stacks.
func (t *waitsTable) longest() {
	if len(t.Longest) == 0 {
		return
	}
	t.printf("\n%s\n", t.style.Paint(terminal.Bold,
		"Longest waits above their thresholds (at most "+strconv.Itoa(waits.MaxLongest)+")"))
	for i := range t.Longest[:t.shown(len(t.Longest))] {
		l := &t.Longest[i]
		wait, turn, reason := units.Nanos(float64(l.WaitNs)), units.Nanos(float64(l.RunqNs)),
			t.Reason(l.Class, l.Syscall)
		ns, text := wait, reason
		switch {
		case !l.WaitTooLong:
			ns, text = turn, "runqueue after "+wait+" of "+reason
		case l.RunqNs > 0:
			text += " and " + turn + " for a CPU"
		}
		t.printf("  %s %s  %s, thread %d of process %d\n",
			right(ns, timeWidth), text, terminal.Printable(l.Comm.String()), l.TID, l.TGID)
		if len(l.Frames) > 0 {
			t.printf("%s", t.style.Wrap(terminal.Printable(strings.Join(l.Frames, " ← ")), 12))
		}
	}
	t.more(len(t.Longest)-t.shown(len(t.Longest)), "wait", "  ")
}

// right returns text, right-aligned in a column of the given width.
func right(text string, width int) string { return terminal.PadLeft(text, width) }

// The JSON form of a report of waits.
type (
	waitsJSON struct {
		From      int64          `json:"from_unix_nano"`
		Duration  int64          `json:"duration_ns"`
		Lost      uint64         `json:"lost_events"`
		Programs  []waitsProgram `json:"programs"`
		Processes []waitsProcess `json:"processes"`
		Cost      waitsCost      `json:"cost"`
		Ended     []uint32       `json:"ended,omitempty"`
		Throttled []waitsLimit   `json:"throttled,omitempty"`
		Joins     *waitsJoins    `json:"joins,omitempty"`
	}
	waitsProgram struct {
		Comm      string                `json:"comm"`
		Text      string                `json:"text"`
		Processes int                   `json:"processes"`
		Working   int                   `json:"working_processes"`
		Threads   int                   `json:"working_threads"`
		Classes   map[string]waitsTotal `json:"classes"`
		Named     []waitsNamed          `json:"named,omitempty"`
	}
	waitsLimit struct {
		Cgroup  string `json:"cgroup"`
		Periods uint64 `json:"periods"`
		Stopped uint64 `json:"stopped_periods"`
		Ns      uint64 `json:"stopped_ns"`
	}
	waitsNamed struct {
		Class   string `json:"class"`
		Name    string `json:"name"`
		TotalNs uint64 `json:"total_ns"`
		Idle    bool   `json:"idle"`
	}
	waitsProcess struct {
		PID     uint32        `json:"pid"`
		Comm    string        `json:"comm"`
		Threads []waitsThread `json:"threads"`
	}
	waitsThread struct {
		TID     uint32                `json:"tid"`
		Comm    string                `json:"comm"`
		Classes map[string]waitsTotal `json:"classes"`
	}
	waitsTotal struct {
		Count   uint64 `json:"count"`
		TotalNs uint64 `json:"total_ns"`
		MaxNs   uint64 `json:"max_ns"`
		RunqNs  uint64 `json:"runq_ns"`
		Over    uint64 `json:"over_threshold"`
	}
	waitsJoins struct {
		Exact   uint64            `json:"exact"`
		Missing map[string]uint64 `json:"missing"`
	}
	waitsCost struct {
		Hits     uint64  `json:"hits"`
		NsPerHit float64 `json:"ns_per_hit"`
		CPUShare float64 `json:"cpu_share"`
	}
)

// WaitsJSON writes r as one line of JSON.
func WaitsJSON(w io.Writer, r *waits.Report) error {
	out := waitsJSON{
		From:      r.From.UnixNano(),
		Duration:  int64(r.Duration),
		Lost:      r.Losses.Lost(),
		Programs:  []waitsProgram{},
		Processes: []waitsProcess{},
		Cost:      waitsCost{r.Cost.Hits, r.Cost.NsPerHit, r.Cost.CPUShare},
		Ended:     r.Ended,
	}
	if r.Joins != nil {
		out.Joins = &waitsJoins{Exact: r.Joins.Exact, Missing: make(map[string]uint64)}
		for reason, n := range r.Joins.Missing {
			if n > 0 {
				out.Joins.Missing[waits.Reason(reason).String()] = n
			}
		}
	}
	for _, x := range r.Throttles {
		out.Throttled = append(out.Throttled, waitsLimit(x))
	}
	for _, p := range r.Programs() {
		p.Comm = strings.ToValidUTF8(p.Comm, "\uFFFD")
		program := waitsProgram{p.Comm, programText(&p), p.Processes, p.Working, p.Threads, classesJSON(&p.Totals), nil}
		for _, n := range p.Named {
			program.Named = append(program.Named, waitsNamed{n.Class.String(), n.Name, n.Ns, n.Idle})
		}
		out.Programs = append(out.Programs, program)
	}
	for i := range r.Processes {
		p := &r.Processes[i]
		process := waitsProcess{PID: p.PID, Comm: strings.ToValidUTF8(p.Comm, "\uFFFD")}
		for j := range p.Threads {
			t := &p.Threads[j]
			process.Threads = append(process.Threads,
				waitsThread{t.TID, strings.ToValidUTF8(t.Comm, "\uFFFD"), classesJSON(&t.Totals)})
		}
		out.Processes = append(out.Processes, process)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("write the report as JSON: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func classesJSON(totals *waits.Totals) map[string]waitsTotal {
	classes := make(map[string]waitsTotal)
	for _, c := range byTime(totals) {
		classes[c.String()] = waitsTotal(totals[c])
	}
	return classes
}
