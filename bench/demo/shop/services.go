package shop

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// speaksGRPC contains the services that speak gRPC. The others speak HTTP.
var speaksGRPC = map[string]bool{"pricing": true, "inventory": true, "payment": true, "reviews": true}

// Services returns the service of each process of the shop, once for each replica. Callees precede their callers.
func Services() []string {
	return strings.Fields("outside payment pricing pricing inventory reviews search catalog orders gateway")
}

// Outside is the service of third parties, which is not instrumented.
const Outside = "outside"

// Hosts of the third parties.
const (
	bankHost    = "api.bank.example"
	carrierHost = "api.carrier.example"
)

// Gateway is the service that receives customers' requests.
const Gateway = "gateway"

// define creates the functions of the service.
func (s *service) define(ctx context.Context) error {
	build, ok := map[string]func(context.Context) error{
		"gateway": s.gateway, "catalog": s.catalog, "search": s.search, "pricing": s.pricing, "inventory": s.inventory,
		"orders": s.orders, "payment": s.payment, "reviews": s.reviews, Outside: s.outside,
	}[s.name]
	if !ok {
		return fmt.Errorf("the shop has no service %q", s.name)
	}
	return build(ctx)
}

// small returns a function that computes for about 40 µs.
func (s *service) small(name string) step { return s.fn(name, compute(40)) }

// gateway serves the pages of the shop.
func (s *service) gateway(context.Context) error {
	session := s.fn("session.load", s.small("session.parse"), s.small("session.verify"),
		s.fn("limits.check", compute(20)))
	s.endpoints = map[string]step{
		"POST /home": s.fn("home.handle", session,
			s.fn("home.compose",
				s.fn("home.fetch", together(
					s.fn("home.products", s.post("catalog", "/list")),
					s.fn("home.reviews", s.rpc("reviews", "Top")))),
				s.fn("home.layout", s.small("home.columns"), s.small("home.banner"))),
			s.fn("home.render", s.small("home.template"), s.small("home.minify"))),
		"POST /search": s.fn("find.handle", session,
			s.fn("find.parse", s.small("find.fields"), s.small("find.filters")),
			s.fn("find.results", s.fn("find.query", s.post("search", "/query")),
				s.fn("find.prices", s.rpc("pricing", "Quote"))),
			s.fn("find.render", s.small("find.template"), s.small("find.pages"))),
		"POST /product": s.fn("product.handle", session,
			s.fn("product.fetch",
				s.fn("product.details", s.post("catalog", "/item")),
				together(
					s.fn("product.stock", s.rpc("inventory", "Check")),
					s.fn("product.reviews", s.rpc("reviews", "For")),
					s.fn("product.price", s.rpc("pricing", "Quote")))),
			s.fn("product.render", s.small("product.template"), s.small("product.pictures"))),
		"POST /cart": s.fn("cart.handle", session,
			s.fn("cart.read", s.small("cart.decode"), s.small("cart.merge")),
			s.fn("cart.price", s.fn("cart.quote", s.rpc("pricing", "Quote")), s.small("cart.total")),
			s.fn("cart.deliver", s.fn("cart.delivery", s.rpc("inventory", "Deliver"))),
			s.fn("cart.render", s.small("cart.template"), s.small("cart.hints"))),
		"POST /checkout": s.fn("checkout.handle", session,
			s.fn("checkout.validate", s.small("checkout.address"), s.small("checkout.terms")),
			s.fn("checkout.prepare",
				s.fn("checkout.quote", s.rpc("pricing", "Quote")),
				s.fn("checkout.reserve", s.rpc("inventory", "Reserve"))),
			s.fn("checkout.place", s.post("orders", "/place")),
			s.fn("checkout.confirm", s.small("checkout.mail"), s.small("checkout.template"))),
		"POST /orders": s.fn("orders.handle", session,
			s.fn("orders.fetch", s.post("orders", "/history")),
			s.fn("orders.group", s.small("orders.sort"), s.small("orders.sum")),
			s.fn("orders.render", s.small("orders.template"), s.small("orders.links"))),
		"POST /restock": s.fn("restock.handle", session,
			s.fn("restock.read", s.small("restock.decode"), s.small("restock.check")),
			s.fn("restock.send", s.rpc("inventory", "Restock")),
			s.small("restock.render")),
	}
	return nil
}

// catalog serves the products, from a database.
func (s *service) catalog(ctx context.Context) error {
	picture, err := s.reads("item.picture")
	if err != nil {
		return err
	}
	s.endpoints = map[string]step{
		"POST /list": s.fn("list.handle",
			s.fn("list.filter", s.small("list.parse"), s.small("list.category")),
			s.fn("list.read", s.selects("list.select", "products"), s.selects("list.offers", "offers")),
			s.fn("list.decorate", s.small("list.labels"), s.small("list.pictures")),
			s.fn("list.reply", s.encodes("list.encode"))),
		"POST /item": s.fn("item.handle",
			s.fn("item.read", s.selects("item.select", "products"), s.selects("item.variants", "offers")),
			s.fn("item.describe", s.branch("item.attributes", 60), s.small("item.translate"), picture),
			sometimes(0.3, "related",
				s.fn("item.related", s.selects("related.select", "products"), s.small("related.rank"))),
			s.fn("item.reply", s.small("item.encode"))),
	}
	return s.openDatabase(ctx, fewRows, "products", "offers")
}

// search finds products by text. It computes more than the other services.
func (s *service) search(context.Context) error {
	s.endpoints = map[string]step{
		"POST /query": s.fn("query.handle",
			s.fn("query.parse", s.small("query.tokens"), s.small("query.normalize"), s.branch("query.spell", 50)),
			s.fn("query.match", s.fn("match.postings", compute(120)), s.small("match.intersect")),
			s.fn("query.rank", s.fn("rank.score", compute(4000)), s.small("rank.boost"), s.small("rank.personal")),
			s.fn("query.facets", s.builds("facets.count", 200), s.small("facets.sort")),
			s.fn("query.reply", s.small("query.encode"))),
	}
	return nil
}

// pricing computes prices.
func (s *service) pricing(ctx context.Context) error {
	s.endpoints = map[string]step{
		"Quote": s.fn("quote.handle",
			s.fn("quote.read", s.small("quote.decode"), s.small("quote.customer")),
			s.fn("quote.base", s.selects("base.select", "prices"), s.small("base.margin")),
			s.fn("quote.convert", s.selects("rates.select", "rates"), s.small("convert.round")),
			s.fn("quote.discount", s.small("discount.rules"), sometimes(0.3, "coupon", s.small("discount.coupon")),
				s.small("discount.best")),
			s.fn("quote.tax", s.small("tax.region"), s.branch("tax.rates", 50), s.small("tax.round")),
			s.fn("quote.reply", s.small("quote.sum"), s.small("quote.sign"))),
	}
	return s.openDatabase(ctx, manyRows, "prices", "rates")
}

// inventory keeps the stock and estimates deliveries.
func (s *service) inventory(ctx context.Context) error {
	movements, err := s.appends("movements.append")
	if err != nil {
		return err
	}
	stock := s.locked("stock.update", 30)
	s.endpoints = map[string]step{
		"Check": s.fn("check.handle",
			s.fn("check.read", s.selects("check.select", "stock"), s.small("check.reserved")),
			s.fn("check.estimate", s.small("check.demand"))),
		"Deliver": s.fn("deliver.handle",
			s.fn("deliver.pack", s.small("deliver.boxes"), s.small("deliver.weight")),
			s.fn("deliver.ask", s.small("deliver.route"), s.resolves("deliver.resolve", carrierHost),
				s.post(Outside, "/delivery"), s.small("deliver.choose"))),
		"Reserve": s.fn("reserve.handle",
			s.fn("reserve.plan", s.selects("reserve.select", "stock"), s.small("reserve.pick")),
			s.fn("reserve.apply", stock, s.small("reserve.note"))),
		"Restock": s.fn("refill.handle",
			s.fn("refill.plan", s.small("refill.parse"), s.small("refill.forecast")),
			s.fn("refill.apply", stock, s.fn("refill.record", movements))),
	}
	return s.openDatabase(ctx, fewRows, "stock")
}

// orders stores orders.
func (s *service) orders(ctx context.Context) error {
	audit, err := s.appends("audit.append")
	if err != nil {
		return err
	}
	archive, err := s.reads("history.archive")
	if err != nil {
		return err
	}
	acquire := s.acquires("orders.acquire")
	s.endpoints = map[string]step{
		"POST /place": s.fn("place.handle",
			s.fn("place.validate", s.small("place.items"), s.small("place.number")),
			s.fn("place.store", s.connected(acquire,
				s.inserts("place.insert", "orders"),
				s.fn("place.pay", s.rpc("payment", "Charge")),
				s.small("place.commit"))),
			s.fn("place.record", s.small("audit.format"), audit),
			s.fn("place.receipt", s.small("receipt.number"), s.small("receipt.encode"))),
		"POST /history": s.fn("history.handle",
			s.fn("history.read", s.connected(acquire, s.selects("history.select", "orders"), s.small("history.lines")),
				archive),
			s.fn("history.sum", s.small("history.group"), s.small("history.convert")),
			s.fn("history.reply", s.encodes("history.encode"))),
	}
	return s.openDatabase(ctx, fewRows, "orders")
}

// payment charges customers through the bank.
func (s *service) payment(ctx context.Context) error {
	s.endpoints = map[string]step{
		"Charge": s.fn("charge.handle",
			s.fn("charge.check", s.small("fraud.features"), s.fn("fraud.score", compute(100))),
			s.fn("charge.book", s.connected(s.acquires("ledger.acquire"),
				s.selects("ledger.balance", "ledger"),
				s.fn("bank.authorize", s.small("bank.sign"), s.resolves("bank.resolve", bankHost),
					s.post(Outside, "/authorize"), s.small("bank.verify")),
				s.inserts("ledger.insert", "ledger"))),
			s.fn("charge.reply", s.small("charge.receipt"))),
	}
	return s.openDatabase(ctx, fewRows, "ledger")
}

// reviews serves customers' reviews, from a cache.
func (s *service) reviews(context.Context) error {
	cache := s.locked("cache.touch", 20)
	s.endpoints = map[string]step{
		"Top": s.fn("top.handle",
			s.fn("top.load", cache, s.small("top.decode")),
			s.fn("top.score", s.fn("top.weigh", compute(120)), s.small("top.decay")),
			s.fn("top.reply", s.small("top.cut"))),
		"For": s.fn("for.handle",
			s.fn("for.load", cache, s.small("for.decode")),
			s.fn("for.summarize", s.builds("summary.build", 300), s.small("summary.mood"), s.small("summary.quotes")),
			s.fn("for.reply", s.small("for.encode"))),
	}
	return nil
}

// outside is a bank, a carrier and a name server. They only sleep.
func (s *service) outside(context.Context) error {
	s.endpoints = map[string]step{
		"POST /authorize": s.replyAfter("/authorize", 100*time.Millisecond),
		"POST /delivery":  s.replyAfter("/delivery", 20*time.Millisecond),
	}
	return nil
}
