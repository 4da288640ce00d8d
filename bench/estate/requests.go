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
	stream  bool // the answer lasts half a minute or longer
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
var storeLogin = map[string]string{
	"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("shop:estate-secret")),
}

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

func post(format string, n int) func(*rand.Rand) request {
	return func(r *rand.Rand) request { return request{path: fmt.Sprintf(format, 1+r.IntN(n)), body: "{}"} }
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
		query := fmt.Sprintf(format, 1+r.IntN(200), r.IntN(9000))
		body, _ := json.Marshal(map[string]string{"query": query}) // strings encode
		return request{path: "/graphql", body: string(body)}
	}
}

// requestTypes lists the requests.
var requestTypes = []requestType{
	{name: "bin-json", through: []string{"httpbin"}, weight: 4, make: get("/bin/json?n=%d", 100)},
	{name: "bin-bytes", through: []string{"httpbin"}, weight: 2, make: get("/bin/bytes/%d", 4096)},
	{name: "bin-template", through: []string{"httpbin"}, weight: 2, make: get("/bin/forms/post?n=%d", 100)},
	{
		name:    "store-list",
		through: []string{"kinto", "postgresql", "redis"},
		weight:  2,
		make:    stored(storeRecordsPath, "?_limit=10&_sort=title&n=%d", 100),
	},
	{
		name:    "store-record",
		through: []string{"kinto", "postgresql", "redis"},
		weight:  3,
		make:    stored(storeRecordsPath, "/item-%d", storeRecords),
	},
	{
		name:    "store-write",
		through: []string{"kinto", "postgresql", "redis"},
		weight:  2,
		make: func(r *rand.Rand) request {
			return request{
				method: http.MethodPut, path: fmt.Sprintf("%s/item-%d", storeRecordsPath, 1+r.IntN(storeRecords)),
				body: fmt.Sprintf(`{"data":{"title":"title %d"}}`, r.IntN(1000)), header: storeLogin,
			}
		},
	},
	{
		name:    "partner-record",
		through: []string{"wiremock", "kinto", "postgresql", "redis"},
		weight:  3,
		make:    stored("/partner"+storeRecordsPath, "/item-%d", storeRecords),
	},
	{
		name:    "partner-table",
		through: []string{"wiremock", "datasette"},
		weight:  2,
		make:    get("/partner/tables/shop/orders/%d.json", shopOrders),
	},
	{
		name:    "tables-row",
		through: []string{"datasette"},
		weight:  3,
		make:    get("/tables/shop/orders/%d.json", shopOrders),
	},
	{
		name:    "tables-facet",
		through: []string{"datasette"},
		weight:  2,
		make:    get("/tables/shop/orders.json?_facet=status&_size=10&n=%d", 100),
	},
	{name: "npm-metadata", through: []string{"verdaccio", "npm-origin"}, weight: 3, make: func(r *rand.Rand) request {
		return request{path: "/npm/" + npmPackage(r.IntN(npmPackages))}
	}},
	{name: "npm-archive", through: []string{"verdaccio", "npm-origin"}, weight: 2, make: func(r *rand.Rand) request {
		name := npmPackage(r.IntN(npmPackages))
		return request{path: "/npm/" + name + "/-/" + name + "-1.0.0.tgz"}
	}},
	{name: "graphql-customer", through: []string{"postgraphile", "postgresql"}, weight: 3, make: graphql(
		"{ customerById(id: %d) { name city ordersByCustomerId(first: 5, offset: 0) { nodes { id cents status } } } " +
			"allOrders(first: 3, condition: {cents: %d}) { totalCount } }")},
	{name: "graphql-update", through: []string{"postgraphile", "postgresql"}, weight: 2, make: graphql(
		"mutation { updateOrderById(input: {id: %d, orderPatch: {cents: %d}}) { order { id cents } } }")},
	{name: "image-manifest", through: []string{"registry", "redis"}, weight: 3, make: func(*rand.Rand) request {
		return request{path: "/v2/shop/manifests/latest", header: map[string]string{"Accept": manifestType}}
	}},
	{
		name:    "image-layer",
		through: []string{"registry", "redis"},
		weight:  2,
		make:    func(*rand.Rand) request { return request{path: "/v2/shop/blobs/" + digest(imageLayer)} },
	},
	{
		name:    "order-mail",
		through: []string{"orders", mailer, "redis"},
		weight:  3,
		make:    post("/orders/mail/%d", shopOrders),
	},
	{
		name:    "order-report",
		through: []string{"orders", reports, "datasette", "redis"},
		weight:  3,
		make:    post("/orders/report/%d", shopOrders),
	},
	{name: "feed-latest", through: []string{"feed", "redis"}, weight: 4, make: get("/feed/latest?n=%d", 100)},
	{
		name:    "feed-events",
		through: []string{"feed", "redis"},
		weight:  1,
		make:    get("/feed/events?n=%d", 100),
		stream:  true,
	},
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
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxInFlight}},
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
			err := l.sendAs(ctx, kind, q)
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

// sendAs sends a request of a type. A stream may last streamTimeout, all others requestTimeout.
func (l *load) sendAs(ctx context.Context, k *requestType, q request) error {
	if k.stream {
		limited, cancel := context.WithTimeout(ctx, streamTimeout)
		defer cancel()
		return l.send(limited, q, nil)
	}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return l.send(limited, q, nil)
}

// Limits on the time until the end of an answer.
const (
	requestTimeout = 15 * time.Second
	streamTimeout  = 2 * time.Minute
)

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
		if err := l.sendAs(ctx, k, k.make(r)); err != nil {
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
		list = append(list,
			request{method: http.MethodPut, path: path, body: `{"data":{` + data + `}}`, header: header})
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
		err = l.send(ctx, request{
			method: http.MethodPut,
			path:   path + "&digest=" + digest(blob),
			body:   string(blob),
			header: octets,
		}, nil)
		if err != nil {
			return err
		}
	}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		manifestType, digest(imageConfig), len(imageConfig), digest(imageLayer), len(imageLayer))
	return l.send(ctx, request{
		method: http.MethodPut,
		path:   "/v2/shop/manifests/latest",
		body:   manifest,
		header: map[string]string{"Content-Type": manifestType},
	}, nil)
}

// between returns the outcomes of requests through a service, without streams, by start within [from, to).
func (l *load) between(service string, from, to time.Time) (list []sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.done {
		if !s.kind.stream && !s.start.Before(from) && s.start.Before(to) && slices.Contains(s.kind.through, service) {
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
