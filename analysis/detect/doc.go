// Package detect finds the problems of groups: changes against an expectation that was learned while a group was well, and variable or
// slow groups without a change. It ranks problems, orders their edges by what leads, and refines edges by the observations of requests
// with switched-on tracepoints.
package detect
