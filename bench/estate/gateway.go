package estate

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// gateway is the program that receives all requests.
const gateway = "caddy"

// gatewayRoutes lists the paths that the gateway forwards.
var gatewayRoutes = []struct {
	path, strip string // strip is the prefix of the path that the service does not see
	span        string
	service     string
}{
	{"/bin/*", "/bin", "bin", "httpbin"},
	{"/store/*", "/store", "store", "kinto"},
	{"/partner/*", "/partner", "partner", "wiremock"},
	{"/tables/*", "/tables", "tables", "datasette"},
	{"/npm/*", "/npm", "npm", "verdaccio"},
	{"/graphql", "", "graphql", "postgraphile"},
	{"/v2/*", "", "images", "registry"},
	{"/orders/*", "/orders", "orders", "orders"},
	{"/feed/*", "/feed", "feed", "feed"},
}

// configureGateway writes the configuration of Caddy in its JSON format. A Caddyfile cannot answer errors within the
// tracing directive, so spans would end as successful while a service is down.
func configureGateway(e *estate) error {
	type object = map[string]any
	answer := object{"handler": "static_response", "status_code": "{http.error.status_code}"}
	routes := []object{{
		"match":  []object{{"path": []string{"/ready"}}},
		"handle": []object{{"handler": "static_response", "body": "ok"}},
	}}
	for _, r := range gatewayRoutes {
		var upstreams []object
		for _, name := range e.instances(r.service) {
			upstreams = append(upstreams, object{"dial": local(e.link(gateway, name))})
		}
		if len(upstreams) == 0 {
			continue
		}
		proxy := object{
			"handler":        "reverse_proxy",
			"upstreams":      upstreams,
			"load_balancing": object{"selection_policy": object{"policy": "round_robin"}},
		}
		routes = append(routes, object{
			"match":    []object{{"path": []string{r.path}}},
			"terminal": true,
			"handle": []object{
				{"handler": "rewrite", "strip_path_prefix": r.strip},
				{"handler": "tracing", "span": r.span},
				{
					"handler": "subroute",
					"routes":  []object{{"handle": []object{proxy}}},
					"errors":  object{"routes": []object{{"handle": []object{answer}}}},
				},
			},
		})
	}
	server := object{
		"listen":          []string{local(e.port(gateway))},
		"automatic_https": object{"disable": true},
		"routes":          routes,
	}
	config, err := json.Marshal(object{
		"admin": object{"disabled": true, "config": object{"persist": false}},
		"apps":  object{"http": object{"servers": object{gateway: server}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.dir(gateway), "caddy.json"), config, 0o644)
}

func caddy(e *estate) command {
	return command{
		path: e.installed("caddy", "caddy"),
		args: []string{"run", "--config", e.dir(gateway) + "/caddy.json"},
		env:  e.telemetry(gateway, "HOME="+e.dir(gateway)),
	}
}
