package config

import "path/filepath"

// TenantsDir is the directory in the data directory that has a directory for each tenant but the default one.
const TenantsDir = "tenants"

// MinMemory is the smallest memory of a service, and of a tenant.
const MinMemory = 64 * mib

// Part returns c with a share of the memory and of the disk, between 0 and 1. The service has the rest for others.
func (c *Config) Part(share float64) *Config {
	part := *c
	part.Memory, part.ProcessMemory = int64(share*float64(c.Memory)), c.Memory
	part.OTLP.MaxRequest = min(c.OTLP.MaxRequest, part.Memory/requestShare)
	part.Journal.MaxBytes = int64(share * float64(c.Journal.MaxBytes))
	part.Retention.Bytes = int64(share * float64(c.Retention.Bytes))
	return &part
}

// TenantPath returns the path of a tenant's API and UI below that of the default tenant.
func TenantPath(name string) string { return "/t/" + name }

// Tenant returns the configuration of the tenant with this name, which has a share of the memory and of the disk like
// [Config.Part]. It has a directory and paths of its own. Connections to other systems belong to the default tenant.
func (c *Config) Tenant(name string, share float64) *Config {
	t := c.Part(share)
	t.DataDir = filepath.Join(c.DataDir, TenantsDir, name)
	t.API.BasePath += TenantPath(name)
	if ui := c.UI(); ui != "" {
		t.API.PublicURL = ui + TenantPath(name)
	}
	t.GitHubSecretFile = ""
	t.SamplingHTTP, t.SamplingGRPC = "", ""
	t.Jaeger.Query, t.Export, t.Webhooks, t.Email = nil, Endpoint{}, nil, nil
	return t
}
