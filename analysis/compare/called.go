package compare

import "github.com/sibyl-trace/sibyl/analysis/history"

// calledOperations holds the operations with calls in a window. A comparison looks up the operation of nearly every
// site several times, so we find the operations of sites by number.
type calledOperations struct {
	all    []*operationCalls // in order of their first call
	byNode []*operationCalls // by number of a node of calling; nil without calls
	others map[history.Callee]*operationCalls
	x      *calling
	spare  []operationCalls // memory for further operations
}

func newCalledOperations(x *siteIndex) calledOperations {
	return calledOperations{
		x:      &x.calling,
		byNode: make([]*operationCalls, len(x.calling.nodes)),
		others: make(map[history.Callee]*operationCalls),
	}
}

// at returns the calls of the operation of s, the site with the given number. It adds the operation if it is new.
func (m *calledOperations) at(number int32, s *history.Site) *operationCalls {
	c := &m.byNode[m.x.node[number]]
	if *c == nil {
		*c = m.add(history.Callee{Service: s.Service, Op: s.Op})
		(*c).queue = s.Queue
	}
	return *c
}

// of returns the calls of operation, whether or not it has sites. It adds the operation if it is new.
func (m *calledOperations) of(operation history.Callee) *operationCalls {
	node, isNode := m.x.nodes[operation]
	if isNode && m.byNode[node] != nil {
		return m.byNode[node]
	}
	if c := m.others[operation]; c != nil {
		return c
	}
	c := m.add(operation)
	if isNode {
		m.byNode[node] = c
	} else {
		m.others[operation] = c
	}
	return c
}

// known returns the calls of operation, or nil if it has no calls.
func (m *calledOperations) known(operation history.Callee) *operationCalls {
	if node, isNode := m.x.nodes[operation]; isNode {
		return m.byNode[node]
	}
	return m.others[operation]
}

func (m *calledOperations) add(operation history.Callee) *operationCalls {
	const first, block = 4, 64
	if len(m.spare) == 0 {
		m.spare = make([]operationCalls, min(block, first+len(m.all))) // small applications rarely need more
	}
	c := &m.spare[0]
	m.spare, c.operation = m.spare[1:], operation
	m.all = append(m.all, c)
	return c
}
