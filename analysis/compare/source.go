package compare

// source is a window with the history that it is compared with, site by site. A history is divided into pieces, each
// with about as many calls at the site as the window: [recordedWindow] divides it at calls, and [liveWindow] at slices
// of time.
type source interface {
	// each calls judge for the sites with calls in the window, one after another. If a site needs no sample, each
	// charges its evidence directly.
	each(judge func(number int32))
	// sample returns the calls at a site, or nil if the history has too few. The result is valid until the next call.
	sample(number int32) *sample
	// changed records the surplus of each shape of a sample, and the total.
	changed(number int32, of *sample, all []surplus, total float64)
	// chargeShapes charges the surplus of all sites. Callers are charged only for their surplus beyond the surplus of
	// their callees.
	chargeShapes()
	// counts returns the approximate numbers of calls at a site in the window and in the history. It takes constant
	// time.
	counts(number int32) (now, before float64)
	// sums returns the calls at a site in the window and in the history.
	sums(number int32) (now, before callSum)
	// perCall returns the number of calls at a site per call of its caller's step: in the window, in the history, and
	// in each piece of the history. pieces is empty if the step has too few calls in the history.
	perCall(number int32) (now, usual float64, pieces []float64)
}

// sample holds the calls at a site in the window, and in the pieces of the history.
type sample struct {
	time   siteTime
	shapes []shapeSample // of the window, in a fixed order; nil if they are not judged
	// novel is the share in the window of all shapes that don't occur in the history. unique is, for each piece, the
	// share of its shapes that don't occur in any other piece.
	novel  float64
	unique []float64
}

// shapeSample holds the calls of one shape at a site.
type shapeSample struct {
	calls  float64   // in the window
	share  float64   // share in the calls of the window; 0 if it is not more frequent than usual
	pieces []float64 // its shares in the pieces; nil if the history lacks the shape
	leaf   bool      // the shape of calls that make no calls
	failed bool
}

// surplus is the part of the calls of a shape in the window that is beyond the variation of the history.
type surplus struct {
	calls float64
	part  float64 // of the calls of the shape
}

// chargeSource charges the differences between the window and the history of a source to the ledger.
func (l *ledger) chargeSource(of source) {
	l.source = of
	of.each(func(number int32) {
		s := of.sample(number)
		if s == nil {
			return
		}
		if len(s.shapes) > 0 {
			all, total := l.surplus(s)
			for i := range all {
				s.time.leaves = s.time.leaves || s.shapes[i].leaf && all[i].calls > 0
				if s.shapes[i].failed || s.shapes[i].leaf && l.sites[number].Client {
					l.failing[number] += all[i].calls
				}
			}
			of.changed(number, s, all, total)
		}
		l.chargeTime(&s.time)
	})
	a := added{ledger: l, of: of, x: l.index, sums: make(map[int32][2]callSum), memo: make(map[int32]*inclusives)}
	l.nameMissing()
	a.chargeMissing()
	of.chargeShapes()
	l.countAnswered()
	a.chargeAdded()
	l.chargeBackoff()
}

// surplus returns the surplus of each shape of s, and the total number of calls beyond the history. It reorders the
// shares in s.
func (j Judge) surplus(s *sample) (all []surplus, total float64) {
	all = make([]surplus, len(s.shapes))
	novel := 0.0
	for i := range s.shapes {
		x := &s.shapes[i]
		if x.pieces == nil {
			novel += x.calls
			continue
		}
		calls := j.beyond(x.share, x.pieces) * s.time.calls
		all[i] = surplus{calls, calls / x.calls}
		total += calls
	}
	if novel == 0 {
		return all, total
	}
	calls := j.beyond(s.novel, s.unique) * s.time.calls
	for i := range s.shapes {
		if x := &s.shapes[i]; x.pieces == nil {
			part := calls / novel
			all[i] = surplus{x.calls * part, part}
		}
	}
	return all, total + calls
}

// beyond returns the part of share that exceeds the fence of the shares in pieces. It reorders pieces.
func (j Judge) beyond(share float64, pieces []float64) float64 {
	if share == 0 || atMost(share, pieces, upperQuartile) {
		return 0
	}
	_, limit := j.fence(pieces)
	return max(0, share-limit)
}
