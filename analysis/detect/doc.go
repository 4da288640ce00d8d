// Package detect finds the problems of groups: changes from an expectation that it learned while a group was healthy,
// and chronically variable or slow groups. It ranks problems, orders their edges by contribution, and refines edges
// using observations of requests with switched-on tracepoints.
package detect
