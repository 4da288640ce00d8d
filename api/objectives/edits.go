package objectives

import (
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/datafile"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
)

// Edits stores the objectives and gates that people set in a file in the data directory. It is safe for concurrent use.
type Edits struct {
	path string
	mu   sync.Mutex // guards kept
	kept kept       // immutable; changes replace it
}

// kept is the content of the file.
type kept struct {
	Last       int64     `json:"last"` // highest ID so far
	Objectives []edited  `json:"objectives"`
	Gates      gates     `json:"gates"`
	GatesBy    string    `json:"gates_by"` // empty: nobody has set gates
	GatesAt    time.Time `json:"gates_at"`
}

// edited is an objective that a person added.
type edited struct {
	ID        int64                     `json:"id"`
	By        string                    `json:"by"`
	At        time.Time                 `json:"at"`
	Objective contract.ObjectiveRequest `json:"objective"`
}

// File is the name of the file in the data directory.
const File = "objectives.json"

// Open reads the file in the data directory dir. It needn't exist.
func Open(dir string) (*Edits, error) {
	e := &Edits{path: filepath.Join(dir, File)}
	return e, datafile.Read(e.path, &e.kept)
}

// Reload reads the file again, which another replica has changed.
func (e *Edits) Reload() error {
	again, err := Open(filepath.Dir(e.path))
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = again.kept
	return nil
}

func (e *Edits) snapshot() kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept
}

// replace writes k to the file of e, then sets e.kept.
func (e *Edits) replace(k kept) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := datafile.Replace(e.path, k); err != nil {
		return err
	}
	e.kept = k
	return nil
}

// Complete adds to o, the options of the configuration, the objectives and gates in e about which the configuration
// says nothing.
func (e *Edits) Complete(o *engine.Options) {
	k, all := e.snapshot(), slices.Clone(o.Objectives)
	for i := range k.Objectives {
		if x := goal(&k.Objectives[i].Objective); x.Valid() && !limited(o.Objectives, &x) {
			all = append(all, x)
		}
	}
	o.Objectives, o.Gates = all, k.Gates.over(o.Gates)
}

// limited reports whether one of all limits the same requests as o.
func limited(all []incident.Objective, o *incident.Objective) bool {
	return slices.ContainsFunc(all, func(x incident.Objective) bool { return x.SameRequests(o) })
}

// goal converts r, which may be invalid.
func goal(r *contract.ObjectiveRequest) incident.Objective {
	return incident.Objective{
		Name:       r.Name,
		Entry:      r.Entry,
		Below:      time.Duration(r.BelowNs),
		Percentile: r.Percentile,
		Errors:     r.Errors,
	}
}

// gates holds some of the gates in the units of the API.
type gates map[contract.Gate]float64

// gateNames lists all gates.
var gateNames = []contract.Gate{
	contract.GateGrowth, contract.GateTimeNs, contract.GateLostNs, contract.GateFailing, contract.GateScore,
}

func gatesOf(g incident.Gates) gates {
	return gates{
		contract.GateGrowth:  g.Growth,
		contract.GateTimeNs:  float64(g.Time),
		contract.GateLostNs:  float64(g.Lost),
		contract.GateFailing: g.Failing,
		contract.GateScore:   g.Score,
	}
}

// requested returns the gates that r contains.
func requested(r *contract.GatesRequest) gates {
	g := make(gates)
	for name, value := range map[contract.Gate]*float64{
		contract.GateGrowth: r.Growth, contract.GateFailing: r.Failing, contract.GateScore: r.Score,
	} {
		if value != nil {
			g[name] = *value
		}
	}
	for name, value := range map[contract.Gate]*int64{
		contract.GateTimeNs: r.TimeNs, contract.GateLostNs: r.LostNs,
	} {
		if value != nil {
			g[name] = float64(*value)
		}
	}
	return g
}

// configured returns the names of the gates in c, the gates of the configuration, that aren't defaults.
func configured(c incident.Gates) []contract.Gate {
	usual, values := gatesOf(incident.DefaultGates()), gatesOf(c)
	return slices.DeleteFunc(slices.Clone(gateNames),
		func(name contract.Gate) bool { return values[name] == usual[name] })
}

// over returns c, the gates of the configuration, with the gates in g instead of defaults.
func (g gates) over(c incident.Gates) incident.Gates {
	all, set := gatesOf(c), configured(c)
	for name, value := range g {
		if value > 0 && !slices.Contains(set, name) {
			all[name] = value
		}
	}
	return incident.Gates{
		Growth:  all[contract.GateGrowth],
		Time:    time.Duration(all[contract.GateTimeNs]),
		Lost:    time.Duration(all[contract.GateLostNs]),
		Failing: all[contract.GateFailing],
		Score:   all[contract.GateScore],
	}
}

// names returns the names of g in the order of gateNames.
func (g gates) names() []contract.Gate {
	return slices.DeleteFunc(slices.Clone(gateNames), func(name contract.Gate) bool { _, set := g[name]; return !set })
}
