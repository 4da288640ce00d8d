package wild

import "fmt"

// grpcCodes maps codes of HTTP to codes of gRPC.
var grpcCodes = map[int]int64{0: 0, 200: 0, 404: 5, 503: 14, 504: 4}

// noResponse is the code of a call without an answer.
const noResponse = 599

// key returns the name of an attribute in the conventions of the installation.
func (x *execution) key(now, before string) string {
	if x.app.style.oldNames {
		return before
	}
	return now
}

func (x *execution) serverAttrs(o *operation, code int) []attr {
	if o.service.grpc {
		return []attr{
			{key: "rpc.system", text: "grpc"},
			{key: "rpc.service", text: o.service.name},
			{key: "rpc.method", text: o.route},
			{key: "rpc.grpc.status_code", number: grpcCodes[code]},
		}
	}
	return []attr{
		{key: x.key("http.request.method", "http.method"), text: o.method},
		{key: "http.route", text: o.route},
		{key: x.key("http.response.status_code", "http.status_code"), number: int64(max(200, code))},
	}
}

// clientName returns the name of a CLIENT span that calls an operation.
func (x *execution) clientName(o *operation) string {
	if o.service.grpc || x.app.style.routed {
		return o.name()
	}
	return o.method
}

// answered returns the attribute with the code of the answer to a call.
func (x *execution) answered(st *step, code int) []attr {
	switch {
	case code == noResponse:
		return nil
	case st.to.service.grpc:
		return []attr{{key: "rpc.grpc.status_code", number: grpcCodes[code]}}
	}
	return []attr{{key: x.key("http.response.status_code", "http.status_code"), number: int64(max(200, code))}}
}

func (x *execution) callAttrs(st *step, address string, code int) []attr {
	o := st.to
	attrs := []attr{
		{key: x.key("server.address", "net.peer.name"), text: address},
		{key: x.key("server.port", "net.peer.port"), number: int64(o.service.port)},
	}
	if o.service.grpc {
		attrs = append(attrs, attr{key: "rpc.system", text: "grpc"}, attr{key: "rpc.service", text: o.service.name},
			attr{key: "rpc.method", text: o.route})
	} else {
		attrs = append(attrs, attr{key: x.key("http.request.method", "http.method"), text: o.method})
		if x.app.style.clientURL {
			url := fmt.Sprintf("http://%s:%d%s", address, o.service.port, o.route)
			attrs = append(attrs, attr{key: x.key("url.full", "http.url"), text: url})
		}
	}
	return append(attrs, x.answered(st, code)...)
}

// addressOf returns the address that clients use for a pod.
func (x *execution) addressOf(p *pod) string {
	switch x.app.style.addresses {
	case byPodIP:
		return p.ip
	case byVirtualIP:
		return p.service.virtual
	case byName:
	}
	return p.service.name + x.app.style.domain
}

func (x *execution) backendAttrs(b *backend) []attr {
	if b.system == "" { // third parties have names everywhere
		return []attr{
			{key: x.key("http.request.method", "http.method"), text: "POST"},
			{key: x.key("server.address", "net.peer.name"), text: b.host},
			{key: x.key("server.port", "net.peer.port"), number: int64(b.port)},
			{key: x.key("http.response.status_code", "http.status_code"), number: 200},
		}
	}
	address := b.host
	if x.app.style.addresses != byName {
		address = b.ip
	}
	return []attr{
		{key: x.key("db.system.name", "db.system"), text: b.system},
		{key: x.key("server.address", "net.peer.name"), text: address},
		{key: x.key("server.port", "net.peer.port"), number: int64(b.port)},
	}
}

func (x *execution) queueAttrs(q *queue) []attr {
	return []attr{
		{key: "messaging.system", text: q.system},
		{key: x.key("messaging.destination.name", "messaging.destination"), text: q.name},
	}
}

// resource returns the attributes of the resource of a pod.
func (a *app) resource(p *pod) []attr {
	attrs := []attr{{key: "service.name", text: p.service.name}}
	add := func(key, text string, present bool) {
		if present {
			attrs = append(attrs, attr{key: key, text: text})
		}
	}
	add("service.version", p.version, p.version != "")
	if p == a.phone {
		add("os.name", "Android", true)
		return attrs
	}
	host := p.name
	if a.style.hostIs == "node" {
		host = p.node.name
	}
	add("host.name", host, true)
	add("k8s.node.name", p.node.name, true)
	add("k8s.pod.name", p.name, a.style.podName)
	add("k8s.pod.ip", p.ip, a.style.podIP)
	add("service.instance.id", p.uid, a.style.instance)
	add("cloud.availability_zone", p.node.zone, a.style.zone)
	return attrs
}
