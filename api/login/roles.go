package login

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/sibyl-trace/sibyl/api/access"
)

// Roles maps values of a claim to roles. A person whose claim has several values gets the highest of the roles.
type Roles struct {
	Claim    string // its name, or a path to it like realm_access.roles
	Admin    []string
	Operator []string
	Viewer   []string
}

// claims holds the claims of a person or a program, as asserted by the provider.
type claims map[string]any

// of returns the highest role that c gives, and a value that gives it. Both are empty if there is no such value.
func (r *Roles) of(c claims) (role access.Role, value string) {
	values := c.values(r.Claim)
	role = r.from(values)
	i := slices.IndexFunc(values, func(v string) bool { return r.from([]string{v}) == role })
	if role == "" || i < 0 {
		return "", ""
	}
	return role, values[i]
}

// from returns the highest role that any of values gives, or "" if no value gives a role.
func (r *Roles) from(values []string) access.Role {
	has := func(list []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
	}
	switch {
	case has(r.Admin):
		return access.Admin
	case has(r.Operator):
		return access.Operator
	case has(r.Viewer):
		return access.Viewer
	}
	return ""
}

// tenants returns the scope that c gives its subject: the tenants that are named by the claim o.TenantClaim. If the
// claim has values but no value names a tenant, the subject may not enter any tenant. If it has no values, the subject
// isn't limited to tenants.
func (o *Options) tenants(c claims) access.Scope {
	values := c.values(o.TenantClaim)
	if len(values) == 0 {
		return ""
	}
	known := slices.DeleteFunc(values, func(v string) bool { return !o.IsTenant(v) })
	return cmp.Or(access.Scope(strings.Join(known, " ")), access.Nowhere)
}

// values returns the strings in a claim. It first looks for a claim with exactly this name, because some providers use
// URLs as names, which contain dots. If there is no such claim, it treats the name as a path.
func (c claims) values(claim string) []string {
	found, ok := c[claim]
	if !ok {
		found = map[string]any(c)
		for name := range strings.SplitSeq(claim, ".") {
			object, _ := found.(map[string]any)
			found = object[name]
		}
	}
	switch found := found.(type) {
	case string:
		return []string{found}
	case []any:
		var values []string
		for _, v := range found {
			if text, ok := v.(string); ok {
				values = append(values, text)
			}
		}
		return values
	}
	return nil
}

// maxName is the maximum length, in characters, of the name of a person or a program.
const maxName = 100

// name returns the display name of the person or the program. It prefers the e-mail address, if the provider has
// verified it. Many providers let people choose the other names, so it doesn't use any that looks like an e-mail
// address, which may be somebody else's. The last resort is the subject.
func (c claims) name() string {
	verified := c["email_verified"] == true || c["email_verified"] == "true"
	for _, key := range []string{"email", "preferred_username", "name", "sub"} {
		text, _ := c[key].(string)
		name := []rune(strings.Map(printable, text))
		usable := key == "sub" || key == "email" && verified || key != "email" && !strings.ContainsAny(text, "@＠﹫")
		if len(name) > 0 && usable {
			return string(name[:min(len(name), maxName)])
		}
	}
	return ""
}

// printable returns r, or -1 if it isn't printable.
func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return -1
	}
	return r
}
