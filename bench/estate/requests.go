package estate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// requestType is a request that the load generator sends to the gateway.
type requestType struct {
	name    string
	through []string // services behind the gateway, in any order; it is sent only if all of them run
	weight  int
	make    func(r *rand.Rand) request
}

// request is the varying part of a request. The method is GET without a body, POST with one, unless set.
type request struct {
	method, path, body string
	header             map[string]string
}

// Numbers of objects that requests choose from.
const (
	storeRecords = 40
	shopOrders   = 3000
)

// storeLogin is the login of the account in Kinto.
var storeLogin = map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("shop:estate-secret"))}

// The content of the repository in the container registry.
var (
	imageLayer  = bytes.Repeat([]byte("layer"), 4000)
	imageConfig = []byte("{}")
)

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

const (
	storeRecordsPath = "/store/v1/buckets/shop/collections/items/records"
	manifestType     = "application/vnd.oci.image.manifest.v1+json"
)

func get(format string, n int) func(*rand.Rand) request {
	return func(r *rand.Rand) request { return request{path: fmt.Sprintf(format, 1+r.IntN(n))} }
}

// stored returns a request to Kinto with the login.
func stored(prefix, format string, n int) func(*rand.Rand) request {
	return func(r *rand.Rand) request {
		return request{path: prefix + fmt.Sprintf(format, 1+r.IntN(n)), header: storeLogin}
	}
}

// graphql returns a request with a query that contains two numbers.
func graphql(format string) func(*rand.Rand) request {
	return func(r *rand.Rand) request {
		query, _ := json.Marshal(map[string]string{"query": fmt.Sprintf(format, 1+r.IntN(200), r.IntN(9000))}) // strings encode
		return request{path: "/graphql", body: string(query)}
	}
}

// requestTypes lists the requests.
var requestTypes = []requestType{
	{"bin-json", []string{"httpbin"}, 4, get("/bin/json?n=%d", 100)},
	{"bin-bytes", []string{"httpbin"}, 2, get("/bin/bytes/%d", 4096)},
	{"bin-template", []string{"httpbin"}, 2, get("/bin/forms/post?n=%d", 100)},
	{"store-list", []string{"kinto", "postgresql", "redis"}, 2, stored(storeRecordsPath, "?_limit=10&_sort=title&n=%d", 100)},
	{"store-record", []string{"kinto", "postgresql", "redis"}, 3, stored(storeRecordsPath, "/item-%d", storeRecords)},
	{"store-write", []string{"kinto", "postgresql", "redis"}, 2, func(r *rand.Rand) request {
		return request{
			method: http.MethodPut, path: fmt.Sprintf("%s/item-%d", storeRecordsPath, 1+r.IntN(storeRecords)),
			body: fmt.Sprintf(`{"data":{"title":"title %d"}}`, r.IntN(1000)), header: storeLogin,
		}
	}},
	{"partner-record", []string{"wiremock", "kinto", "postgresql", "redis"}, 3, stored("/partner"+storeRecordsPath, "/item-%d", storeRecords)},
	{"partner-table", []string{"wiremock", "datasette"}, 2, get("/partner/tables/shop/orders/%d.json", shopOrders)},
	{"tables-row", []string{"datasette"}, 3, get("/tables/shop/orders/%d.json", shopOrders)},
	{"tables-facet", []string{"datasette"}, 2, get("/tables/shop/orders.json?_facet=status&_size=10&n=%d", 100)},
	{"npm-metadata", []string{"verdaccio", "npm-origin"}, 3, func(r *rand.Rand) request {
		return request{path: "/npm/" + npmPackage(r.IntN(npmPackages))}
	}},
	{"npm-archive", []string{"verdaccio", "npm-origin"}, 2, func(r *rand.Rand) request {
		name := npmPackage(r.IntN(npmPackages))
		return request{path: "/npm/" + name + "/-/" + name + "-1.0.0.tgz"}
	}},
	{"graphql-customer", []string{"postgraphile", "postgresql"}, 3, graphql(
		"{ customerById(id: %d) { name city ordersByCustomerId(first: 5, offset: 0) { nodes { id cents status } } } allOrders(first: 3, condition: {cents: %d}) { totalCount } }")},
	{"graphql-update", []string{"postgraphile", "postgresql"}, 2, graphql(
		"mutation { updateOrderById(input: {id: %d, orderPatch: {cents: %d}}) { order { id cents } } }")},
	{"image-manifest", []string{"registry", "redis"}, 3, func(*rand.Rand) request {
		return request{path: "/v2/shop/manifests/latest", header: map[string]string{"Accept": manifestType}}
	}},
	{"image-layer", []string{"registry", "redis"}, 2, func(*rand.Rand) request { return request{path: "/v2/shop/blobs/" + digest(imageLayer)} }},
}

// sent is a request with its outcome.
type sent struct {
	kind  *requestType
	start time.Time
	took  time.Duration
	ok    bool // answered with a status below 400
}

// load sends requests and keeps their outcomes. It is safe for concurrent use.
type load struct {
	gateway string // URL
	rate    float64
	kinds   []*requestType
	client  *http.Client

	mu   sync.Mutex // guards done
	done []sent     // in the order of completion
}

// maxInFlight bounds the concurrent requests. Beyond it requests are not sent, as a crowd of users would give up.
const maxInFlight = 100

// newLoad returns a load of the request types that the running programs can answer.
func newLoad(e *estate, rate float64) *load {
	l := &load{
		gateway: "http://" + local(e.port(gateway)), rate: rate,
		client: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: maxInFlight}},
	}
	services := make(map[string]bool)
	for _, p := range e.order {
		services[p.serviceName()] = true
	}
	for i := range requestTypes {
		missing := func(s string) bool { return !services[s] }
		if k := &requestTypes[i]; !slices.ContainsFunc(k.through, missing) {
			l.kinds = append(l.kinds, k)
		}
	}
	return l
}

// run sends requests at random times until ctx ends, and waits for the last answers.
func (l *load) run(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	slots := make(chan struct{}, maxInFlight)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(r.ExpFloat64() / l.rate * float64(time.Second))):
		}
		kind := l.pick(r)
		q := kind.make(r)
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			err := l.send(ctx, q, nil)
			if ctx.Err() != nil {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done = append(l.done, sent{kind, start, time.Since(start), err == nil})
		})
	}
}

// pick returns a random request type by weight.
func (l *load) pick(r *rand.Rand) *requestType {
	total := 0
	for _, k := range l.kinds {
		total += k.weight
	}
	n := r.IntN(total)
	for _, k := range l.kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("unreachable: the weights add up to total")
}

// send sends a request to the gateway. It returns an error if the status is 400 or higher, or if GraphQL answers with
// errors. answered, if not nil, gets the header.
func (l *load) send(ctx context.Context, q request, answered func(http.Header)) error {
	method := q.method
	if method == "" {
		method = http.MethodGet
		if q.body != "" {
			method = http.MethodPost
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, l.gateway+q.path, bytes.NewReader([]byte(q.body)))
	if err != nil {
		return err
	}
	if q.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	answer, err := l.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest || bytes.Contains(text[:min(len(text), 100)], []byte(`{"errors":`)) {
		return fmt.Errorf("%s %s: %s: %s", method, q.path, answer.Status, tail(text))
	}
	if answered != nil {
		answered(answer.Header)
	}
	return nil
}

// fill creates the objects that the requests read, through the gateway, and sends each type once.
func (l *load) fill(ctx context.Context) error {
	for _, q := range l.objects() {
		if err := l.send(ctx, q, nil); err != nil {
			return err
		}
	}
	if l.serves("registry") {
		if err := l.push(ctx); err != nil {
			return err
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, k := range l.kinds {
		if err := l.send(ctx, k.make(r), nil); err != nil {
			return fmt.Errorf("the first %s: %w", k.name, err)
		}
	}
	return nil
}

// serves reports whether requests reach a service.
func (l *load) serves(service string) bool {
	return slices.ContainsFunc(l.kinds, func(k *requestType) bool { return slices.Contains(k.through, service) })
}

// objects returns the requests that fill Kinto.
func (l *load) objects() (list []request) {
	if !l.serves("kinto") {
		return nil
	}
	put := func(path, data string, header map[string]string) {
		list = append(list, request{method: http.MethodPut, path: path, body: `{"data":{` + data + `}}`, header: header})
	}
	put("/store/v1/accounts/shop", `"password":"estate-secret"`, nil)
	put("/store/v1/buckets/shop", "", storeLogin)
	put("/store/v1/buckets/shop/collections/items", "", storeLogin)
	for i := range storeRecords {
		put(fmt.Sprintf("%s/item-%d", storeRecordsPath, i+1), fmt.Sprintf(`"title":"title %d"`, i), storeLogin)
	}
	return list
}

// push uploads an image to the container registry.
func (l *load) push(ctx context.Context) error {
	for _, blob := range [][]byte{imageLayer, imageConfig} {
		location := ""
		start := request{method: http.MethodPost, path: "/v2/shop/blobs/uploads/"}
		if err := l.send(ctx, start, func(h http.Header) { location = h.Get("Location") }); err != nil {
			return err
		}
		path, err := pathOf(location)
		if err != nil {
			return err
		}
		octets := map[string]string{"Content-Type": "application/octet-stream"}
		if err := l.send(ctx, request{method: http.MethodPut, path: path + "&digest=" + digest(blob), body: string(blob), header: octets}, nil); err != nil {
			return err
		}
	}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		manifestType, digest(imageConfig), len(imageConfig), digest(imageLayer), len(imageLayer))
	return l.send(ctx, request{
		method: http.MethodPut, path: "/v2/shop/manifests/latest", body: manifest, header: map[string]string{"Content-Type": manifestType},
	}, nil)
}

// between returns the outcomes of requests through a service, by start within [from, to).
func (l *load) between(service string, from, to time.Time) (list []sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.done {
		if !s.start.Before(from) && s.start.Before(to) && slices.Contains(s.kind.through, service) {
			list = append(list, s)
		}
	}
	return list
}

// pathOf returns path and query of a URL.
func pathOf(location string) (string, error) {
	u, err := url.Parse(location)
	if err != nil {
		return "", err
	}
	return u.RequestURI(), nil
}
