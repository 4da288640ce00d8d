package estate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// address returns the host and port by which a program calls another: an IP address or, in the half of the run that
// uses names, a name. Go's resolver knows only the hosts of the machine, so Go programs always use the IP address.
// Their spans do not show it.
func (e *estate) address(from, to string) string {
	port := e.link(from, to)
	if !e.named || from == gateway || from == "registry" {
		return local(port)
	}
	return hostName(to) + ":" + strconv.Itoa(port)
}

// addresses returns the kind of addresses in use: "name" or "ip".
func (e *estate) addresses() string {
	if e.named {
		return "name"
	}
	return "ip"
}

// hostName returns the name of a program's host. The top level domain is reserved for private networks.
func hostName(program string) string { return program + ".estate.internal" }

// hostsFile returns the path of the file with the names.
func (e *estate) hostsFile() string { return filepath.Join(e.root, "hosts") }

// writeHosts writes the file with the names, in the format of /etc/hosts. They share a line, because nss_wrapper fails
// on the second line of an address.
func (e *estate) writeHosts() error {
	machine, err := os.Hostname() // Java knows no other names than these
	if err != nil {
		return err
	}
	names := []string{"127.0.0.1", "localhost", machine}
	for _, p := range e.order {
		names = append(names, hostName(p.name))
	}
	return os.WriteFile(e.hostsFile(), []byte(strings.Join(names, " ")+"\n"), 0o644)
}

// resolver returns the environment in which the C library also knows the names. Java has an option for it.
func (e *estate) resolver() []string {
	if !e.named {
		return nil
	}
	library := filepath.Join(e.installer.libraries(packageNamed("names")), "libnss_wrapper.so")
	return []string{"LD_PRELOAD=" + library, "NSS_WRAPPER_HOSTS=" + e.hostsFile()}
}

// useNames restarts all programs with spans, one after the other, and lets them call each other by name. The requests
// go on, as during any deploy.
func (e *estate) useNames(ctx context.Context) error {
	e.named = true
	for i := range e.order {
		p := &e.order[i]
		if p.external || p.name == gateway {
			continue
		}
		fmt.Fprintf(e.out, "starting %s with names\n", p.name)
		e.group.stop(e.processes[p.name], stopTimeout)
		if err := e.start(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
