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

// Rules configure the grouping of requests. They take precedence over learned types. The zero value has no effect.
type Rules struct {
	Types   []TypeRule // the first rule that matches a request applies
	GroupBy []string   // attributes that divide every request type into groups by their values, which should be few
	// Size is the attribute that holds the size of a request in bytes. If it is set, requests are judged relative to
	// their size.
	Size    string
	Timeout time.Duration // of requests with a size; 0 if unknown
}

// TypeRule configures some requests. An empty field has no effect.
type TypeRule struct {
	Entry     string // matches requests with this entry, "service operation"
	Attribute string // matches requests whose entry span has this attribute …
	Value     string // … with this value; empty means any

	Name      string   // of the request type; if several rules have the same name, the other fields of the first apply
	Merge     bool     // use one group for all requests, whatever their path
	GroupBy   []string // keys as in Rules, for these requests
	Size      string   // Size and Timeout as in Rules, for these requests
	Timeout   time.Duration
	Objective time.Duration
	Accepted  AcceptedLevel
}

// Check returns all errors in the rules, joined, or nil if there are none.
func (r *Rules) Check() error {
	var wrong []error
	for i := range r.Types {
		t := &r.Types[i]
		switch {
		case t.Entry == "" && t.Attribute == "":
			wrong = append(wrong, fmt.Errorf("rule %d: set an entry or an attribute", i+1))
		case t.Attribute != "" && t.Name == "":
			wrong = append(wrong,
				fmt.Errorf("rule %d: an attribute needs a name for the request type", i+1))
		case t.Value != "" && t.Attribute == "":
			wrong = append(wrong, fmt.Errorf("rule %d: a value needs an attribute", i+1))
		case t.Timeout < 0 || t.Timeout > 0 && t.Size == "" && r.Size == "":
			wrong = append(wrong, fmt.Errorf("rule %d: a timeout must be above 0, and needs size", i+1))
		}
	}
	if r.Timeout < 0 || r.Timeout > 0 && r.Size == "" {
		wrong = append(wrong, errors.New("a timeout must be above 0, and needs size"))
	}
	return errors.Join(wrong...)
}

// RuleSet applies rules to requests. It is not safe for concurrent use.
type RuleSet struct {
	rules   []TypeRule
	groupBy []trace.Symbol   // for every type, ascending
	byRule  [][]trace.Symbol // by rule: groupBy and the keys of the rule
	size    sizeRule
	sizes   []sizeRule            // by rule
	named   map[analysis.Hash]int // the first rule of a named request type
	table   *trace.Table
	entries map[trace.Op][]int // cache of the rules that can match requests by entry operation
}

// NewRuleSet returns a RuleSet that applies rules to operations in table. The rules must pass [Rules.Check].
func NewRuleSet(rules Rules, table *trace.Table) *RuleSet {
	s := &RuleSet{
		rules:   rules.Types,
		groupBy: symbolsOf(rules.GroupBy),
		named:   make(map[analysis.Hash]int),
		table:   table,
		entries: make(map[trace.Op][]int),
		size:    sizeRule{trace.SymbolOf([]byte(rules.Size)), rules.Timeout},
	}
	for i := range rules.Types {
		t := &rules.Types[i]
		s.byRule = append(s.byRule, symbolsOf(slices.Concat(rules.GroupBy, t.GroupBy)))
		s.sizes = append(s.sizes, sizeRule{
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

// namedType returns the identity of the request type with the given name in rules.
func namedType(name string) analysis.Hash {
	return analysis.HashOf(uint64(trace.SymbolOf([]byte(name))), 2)
}

// typeOf returns the request type that the first rule matching o names. It returns false if no rule matches o, or if
// that rule names no type.
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

// candidates returns the indices of the rules that requests with the given entry can match.
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

// matches reports whether the entry span of o has the attribute and value of t. The entry of o must match t already.
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

// rule returns the index of the rule for a request type with the given entry, or -1 if no rule applies to it.
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

// name returns the name of a request type in the rules, or "" if they don't name it.
func (s *RuleSet) name(requestType analysis.Hash) string {
	if s == nil {
		return ""
	}
	if i, ok := s.named[requestType]; ok {
		return s.rules[i].Name
	}
	return ""
}

// key reports whether the skeleton divides the requests with the given type and entry into groups, and returns the
// attributes that also divide them.
func (s *RuleSet) key(requestType analysis.Hash, entry trace.Op) (skeleton bool, attributes []trace.Symbol) {
	if s == nil {
		return true, nil
	}
	if i := s.rule(requestType, entry); i >= 0 {
		return !s.rules[i].Merge, s.byRule[i]
	}
	return true, s.groupBy
}

// sizeRule returns the rule for the sizes of requests with the given type and entry.
func (s *RuleSet) sizeRule(requestType analysis.Hash, entry trace.Op) sizeRule {
	if s == nil {
		return sizeRule{}
	}
	if i := s.rule(requestType, entry); i >= 0 {
		return s.sizes[i]
	}
	return s.size
}

// Expects returns the objective of the requests of group, or 0 if they have none, and their accepted level.
func (s *RuleSet) Expects(group *Group) (objective time.Duration, accepted AcceptedLevel) {
	if i := s.rule(group.RequestType, group.Entry); i >= 0 {
		objective, accepted = s.rules[i].Objective, s.rules[i].Accepted
	}
	return objective, accepted
}

// AcceptedLevel is a level that a person has decided to live with. A zero field accepts nothing.
type AcceptedLevel struct {
	CoV     float64       // requests up to it are not variable
	Delayed float64       // fraction of requests that may be delayed or time out
	Mean    time.Duration // requests up to it are not slow
}
