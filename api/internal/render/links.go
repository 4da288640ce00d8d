package render

import (
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/directory"
)

// Owner returns the owner of a service, or nil if d doesn't name one.
func Owner(d *directory.Directory, service string) *contract.Owner {
	o := d.Owner(service)
	if o == nil {
		return nil
	}
	x := &contract.Owner{Name: o.Name}
	if o.Contact != "" {
		x.Contact = &o.Contact
	}
	return x
}

// Links converts links to the type of the contract.
func Links(links []directory.URL) []contract.Link {
	all := make([]contract.Link, 0, len(links))
	for _, u := range links {
		all = append(all, contract.Link{Name: u.Name, URL: u.URL})
	}
	return all
}
