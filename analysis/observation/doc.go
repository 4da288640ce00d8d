// Package observation reduces critical paths to observations: the contribution of one request to statistics, with the
// definitions of all contexts and edges that it names. It packs observations into a few hundred bytes each, and
// collects the durations of the spans of each operation.
package observation
