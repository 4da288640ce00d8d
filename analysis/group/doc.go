// Package group assigns observations to groups, which are expected to perform alike, and keeps their statistics: exact
// sums per edge, a sketch of the durations, uniform samples, and coarser statistics of the past. It learns request
// types and applies rules. It does not decide which groups have problems; see package detect.
package group
