// Package observation reduces critical paths to observations: what one request contributes to statistics, with all definitions that a
// reader needs. It packs observations into some hundred bytes each, and keeps how long the spans of each operation took.
package observation
