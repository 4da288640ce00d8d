package group

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules are what somebody says about requests; it goes before what is learned of them. The zero value says nothing.
type Rules struct {
	Types   []TypeRule    // the first that matches a request holds for it
	GroupBy []string      // keys of attributes whose values tell groups of every request type apart; of few values each
	Size    string        // key of the attribute with the size of a request in bytes: what takes long for its size is judged, not what is large
	Timeout time.Duration // after which a request with a size is given up; 0: not known
}

// TypeRule says what holds for some requests. Fields that are empty say nothing.
type TypeRule struct {
	Entry     string // matches requests that enter there, "service operation"
	Attribute string // matches requests whose entry span has this attribute ...
	Value     string // ... with this value; empty: any

	Name      string   // of the request type that they are; rules may share one, of which the first says the rest
	Merge     bool     // one group for all of them, whatever their path
	GroupBy   []string // keys as in Rules, for these requests
	Size      string   // and Timeout: as in Rules, for these requests
	Timeout   time.Duration
	Objective time.Duration
	Accepted  AcceptedLevel
}

// Check returns what is wrong with the rules, nil if nothing is.
func (r *Rules) Check() error {
	var wrong []error
	for i := range r.Types {
		t := &r.Types[i]
		switch {
		case t.Entry == "" && t.Attribute == "":
			wrong = append(wrong, fmt.Errorf("rule %d: name an entry or an attribute that its requests have", i+1))
		case t.Attribute != "" && t.Name == "":
			wrong = append(wrong, fmt.Errorf("rule %d: requests told apart by an attribute need the name of a request type", i+1))
		case t.Value != "" && t.Attribute == "":
			wrong = append(wrong, fmt.Errorf("rule %d: a value without an attribute", i+1))
		case t.Timeout < 0 || t.Timeout > 0 && t.Size == "" && r.Size == "":
			wrong = append(wrong, fmt.Errorf("rule %d: a time-out is above 0, and for requests with a size", i+1))
		}
	}
	if r.Timeout < 0 || r.Timeout > 0 && r.Size == "" {
		wrong = append(wrong, errors.New("a time-out is above 0, and for requests with a size"))
	}
	return errors.Join(wrong...)
}

// RuleSet applies rules to requests. It is not safe for concurrent use.
type RuleSet struct {
	rules   []TypeRule
	groupBy []trace.Symbol   // of every type, ascending
	byRule  [][]trace.Symbol // of the types of a rule: those, and its own
	size    sizing
	sizes   []sizing              // of the types of a rule
	named   map[analysis.Hash]int // the first rule of a request type
	table   *trace.Table
	entries map[trace.Op][]int // rules that an entry operation can match; a cache
}

// NewRuleSet returns the rules, which [Rules.Check] finds nothing wrong with, for operations of the table.
func NewRuleSet(rules Rules, table *trace.Table) *RuleSet {
	s := &RuleSet{
		rules: rules.Types, groupBy: symbolsOf(rules.GroupBy), named: make(map[analysis.Hash]int), table: table,
		entries: make(map[trace.Op][]int), size: sizing{trace.SymbolOf([]byte(rules.Size)), rules.Timeout},
	}
	for i := range rules.Types {
		t := &rules.Types[i]
		s.byRule = append(s.byRule, symbolsOf(slices.Concat(rules.GroupBy, t.GroupBy)))
		s.sizes = append(s.sizes, sizing{
			cmp.Or(trace.SymbolOf([]byte(t.Size)), s.size.key), cmp.Or(t.Timeout, rules.Timeout),
		})
		if _, known := s.named[namedType(t.Name)]; t.Name != "" && !known {
			s.named[namedType(t.Name)] = i
		}
	}
	return s
}

func symbolsOf(keys []string) []trace.Symbol {
	symbols := make([]trace.Symbol, len(keys))
	for i, key := range keys {
		symbols[i] = trace.SymbolOf([]byte(key))
	}
	slices.Sort(symbols)
	return slices.Compact(symbols)
}

// namedType returns the identity of the request type that rules give a name to.
func namedType(name string) analysis.Hash {
	return analysis.HashOf(uint64(trace.SymbolOf([]byte(name))), 2)
}

// typeOf returns the request type that a rule puts o in; false if none does.
func (s *RuleSet) typeOf(o *observation.Observation) (analysis.Hash, bool) {
	if s == nil || len(s.rules) == 0 {
		return analysis.Hash{}, false
	}
	for _, i := range s.candidates(o.Entry) {
		if t := &s.rules[i]; t.matches(o) {
			return namedType(t.Name), t.Name != ""
		}
	}
	return analysis.Hash{}, false
}

// candidates returns the rules that requests of an entry operation can match.
func (s *RuleSet) candidates(entry trace.Op) []int {
	all, known := s.entries[entry]
	if !known {
		name := s.table.ServiceName(entry) + " " + s.table.OpName(entry)
		for i := range s.rules {
			if e := s.rules[i].Entry; e == "" || e == name {
				all = append(all, i)
			}
		}
		if len(s.entries) < maxEntries {
			s.entries[entry] = all
		}
	}
	return all
}

// matches reports whether o, whose entry fits, has the attribute.
func (t *TypeRule) matches(o *observation.Observation) bool {
	if t.Attribute == "" {
		return true
	}
	v := o.Variable(trace.Context(0).Child(o.Entry), trace.SymbolOf([]byte(t.Attribute)))
	switch {
	case v == nil:
		return false
	case t.Value == "":
		return true
	case v.Numeric:
		return numberText(v.Number) == t.Value
	}
	return v.Text == trace.SymbolOf([]byte(t.Value))
}

func numberText(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// rule returns the number of the rule for a request type with the given entry, -1 if there is none.
func (s *RuleSet) rule(requestType analysis.Hash, entry trace.Op) int {
	if s == nil || len(s.rules) == 0 {
		return -1
	}
	if i, ok := s.named[requestType]; ok {
		return i
	}
	for _, i := range s.candidates(entry) {
		if s.rules[i].Name == "" {
			return i
		}
	}
	return -1
}

// name returns the name that rules give to a request type; "" if they give none.
func (s *RuleSet) name(requestType analysis.Hash) string {
	if s == nil {
		return ""
	}
	if i, ok := s.named[requestType]; ok {
		return s.rules[i].Name
	}
	return ""
}

// key returns what tells groups of a request type apart, as far as rules say so: whether the skeleton does, and which attributes.
func (s *RuleSet) key(requestType analysis.Hash, entry trace.Op) (skeleton bool, attributes []trace.Symbol) {
	if s == nil {
		return true, nil
	}
	if i := s.rule(requestType, entry); i >= 0 {
		return !s.rules[i].Merge, s.byRule[i]
	}
	return true, s.groupBy
}

// sizing returns what rules say about the sizes of the requests of a type.
func (s *RuleSet) sizing(requestType analysis.Hash, entry trace.Op) sizing {
	if s == nil {
		return sizing{}
	}
	if i := s.rule(requestType, entry); i >= 0 {
		return s.sizes[i]
	}
	return s.size
}

// Expects returns what rules say of the requests of a group: the objective, 0 for none, and the level that is accepted.
func (s *RuleSet) Expects(group *Group) (objective time.Duration, accepted AcceptedLevel) {
	if i := s.rule(group.RequestType, group.Entry); i >= 0 {
		objective, accepted = s.rules[i].Objective, s.rules[i].Accepted
	}
	return objective, accepted
}

// AcceptedLevel is what somebody decided to live with. Zero fields accept nothing.
type AcceptedLevel struct {
	CoV     float64       // up to which requests do not count as variable
	Delayed float64       // part of them that may be delayed or time out
	Mean    time.Duration // up to which they do not count as slow
}
