package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/server"
)

func tenantCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "tenant",
		Short: "Create, list, export and delete tenants",
		Long: `A tenant is a service of its own in the same process: its data, statistics, incidents, agents, budgets and
audit log are apart. Its API and web UI are at /t/NAME, and its traces come with tokens of
sibyl token create --tenant NAME.

With --server, a running service creates, lists and deletes tenants; that needs a token of the role admin without a
tenant. Otherwise, the commands change the data directory: the service opens new tenants when it is restarted, and must
be stopped to export or delete one.`,
		Args: cli.OnlyCommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(tenantCreateCommand(p), tenantListCommand(p), tenantExportCommand(p), tenantDeleteCommand(p))
	return c
}

func tenantCreateCommand(p *process) *cobra.Command {
	var t server.Tenant
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a tenant",
		Example: `  sibyl tenant create shop --server http://localhost:8321
  sibyl tenant create batch --memory 10 --spans 5000`,
		Args: cli.Arguments(1, 1),
	}
	c.Flags().Float64Var(&t.Memory, "memory", 0, "share of the memory and of the disk in percent; 0: an equal "+
		"share of the rest")
	c.Flags().IntVar(&t.Spans, "spans", 0, "spans per second beyond which requests are refused; 0: unlimited")
	dir, service := addTenantFlags(c, p)
	c.RunE = func(c *cobra.Command, args []string) error {
		t.Name, t.Created = args[0], time.Now().UTC().Truncate(time.Second)
		if service.server != "" {
			request := contract.TenantRequest{Name: t.Name, MemoryPercent: t.Memory, SpansPerSecond: t.Spans}
			return service.change(c, p, "created "+t.Name, func(api *client.Client) error {
				return client.Admin{Client: api}.CreateTenant(c.Context(), request)
			})
		}
		if err := checkDataDir(*dir); err != nil {
			return err
		}
		e := audit.Entry{
			Operation: "createTenant",
			On:        t.Name,
			Detail:    fmt.Sprintf("memory=%g spans=%d", t.Memory, t.Spans),
		}
		err := p.recorded(*dir, e, func() (string, error) { return t.Name, server.CreateTenant(*dir, t) })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "created %s in %s: restart the service to open it\n", t.Name, *dir)
		return err
	}
	return c
}

func tenantListCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the tenants with their quotas",
		Example: "  sibyl tenant list",
		Args:    cli.Arguments(0, 0),
	}
	dir, service := addTenantFlags(c, p)
	c.RunE = func(c *cobra.Command, _ []string) error {
		all, err := server.Tenants(*dir)
		if service.server != "" {
			all, err = service.tenants(c, p)
		}
		if err != nil {
			return err
		}
		out := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(out, "NAME\tMEMORY\tSPANS/S\tCREATED")
		fmt.Fprintln(out, "default\tequal share\tunlimited\t")
		for i := range all {
			t := &all[i]
			memory, spans := "equal share", "unlimited"
			if t.Memory > 0 {
				memory = fmt.Sprintf("%g %%", t.Memory)
			}
			if t.Spans > 0 {
				spans = fmt.Sprint(t.Spans)
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", t.Name, memory, spans, t.Created.Local().Format(time.DateTime))
		}
		return out.Flush()
	}
	return c
}

func tenantExportCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "export NAME DIRECTORY",
		Short: "Copy all data of a tenant to a new directory",
		Long: `Export copies all data of a tenant to a new directory, which is a complete data directory: sibyl serve can run
on it, and another installation can have it in tenants in its data directory. The service must be stopped; to copy the
data of a running one, use sibyl backup with the URL of the tenant, like --server http://localhost:8321/t/shop.`,
		Example: "  sibyl tenant export shop /var/backups/shop",
		Args:    cli.Arguments(2, 2),
	}
	dir := dataDirFlag(c, p)
	c.RunE = func(_ *cobra.Command, args []string) error {
		from, err := server.TenantDir(*dir, args[0])
		if err != nil {
			return err
		}
		if _, err := os.Lstat(args[1]); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s exists: name a new directory", args[1])
		}
		if err := os.Mkdir(args[1], 0o700); err != nil {
			return err
		}
		return os.CopyFS(args[1], os.DirFS(from))
	}
	return c
}

func tenantDeleteCommand(p *process) *cobra.Command {
	var sure bool
	c := &cobra.Command{
		Use:     "delete NAME --yes",
		Short:   "Delete a tenant with all its data",
		Example: "  sibyl tenant delete shop --yes --server http://localhost:8321",
		Args:    cli.Arguments(1, 1),
	}
	c.Flags().BoolVar(&sure, "yes", false, "confirm that all data of the tenant are to be deleted")
	dir, service := addTenantFlags(c, p)
	c.RunE = func(c *cobra.Command, args []string) error {
		name := args[0]
		if !sure {
			return cli.Usagef("this deletes all data of the tenant %s: confirm it with --yes", name)
		}
		if service.server != "" {
			return service.change(c, p, "deleted "+name+" and its tokens", func(api *client.Client) error {
				return client.Admin{Client: api}.DeleteTenant(c.Context(), name)
			})
		}
		e := audit.Entry{Operation: "deleteTenant", On: name}
		if err := checkTenant(*dir, name); err != nil {
			return err
		}
		err := p.recorded(*dir, e, func() (string, error) { return name, server.DeleteTenant(*dir, name) })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "deleted %s and its tokens\n", name)
		return err
	}
	return c
}

// addTenantFlags adds the flags that name a data directory or, alternatively, a running service. --server has no
// default.
func addTenantFlags(c *cobra.Command, p *process) (dir *string, service *serverFlags) {
	dir, service = dataDirFlag(c, p), &serverFlags{}
	c.Flags().StringVar(&service.server, "server", "", "URL of a running service, which then needs no restart")
	addTokenFlag(c, service)
	c.PreRunE = func(*cobra.Command, []string) error {
		if service.server != "" && c.Flags().Changed("data-dir") {
			return cli.Usagef("--server and --data-dir exclude each other")
		}
		return nil
	}
	return dir, service
}

// change calls change with a client for the service, and then prints done.
func (f *serverFlags) change(c *cobra.Command, p *process, done string, change func(*client.Client) error) error {
	api, err := f.client(p)
	if err == nil {
		err = change(api)
	}
	if err == nil {
		_, err = fmt.Fprintln(p.out, done)
	}
	return err
}

// tenants returns the tenants of the service, except for the default tenant.
func (f *serverFlags) tenants(c *cobra.Command, p *process) (all []server.Tenant, err error) {
	api, err := f.client(p)
	if err != nil {
		return nil, err
	}
	list, err := client.Admin{Client: api}.Tenants(c.Context())
	if err != nil {
		return nil, err
	}
	for i := range list {
		t := &list[i]
		if t.Created != nil { // the default tenant was not created
			quota := server.Quota{Memory: t.MemoryPercent, Spans: t.SpansPerSecond}
			all = append(all, server.Tenant{Name: t.Name, Created: *t.Created, Quota: quota})
		}
	}
	return all, nil
}

// checkTenant returns an error if the data directory dir contains no tenant with this name. The name "" of the default
// tenant is always valid.
func checkTenant(dir, name string) error {
	if name == "" {
		return nil
	}
	all, err := server.Tenants(dir)
	if err == nil && !slices.ContainsFunc(all, func(t server.Tenant) bool { return t.Name == name }) {
		err = fmt.Errorf("%w: sibyl tenant list shows them", server.ErrNoTenant)
	}
	return err
}
