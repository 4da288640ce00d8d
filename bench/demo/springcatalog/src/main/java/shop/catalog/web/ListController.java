package shop.catalog.web;

import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import shop.catalog.CustomerRequest;
import shop.catalog.page.ListPage;
import shop.catalog.page.ProductList;

@RestController
class ListController {
  private final ListPage page;

  ListController(ListPage page) {
    this.page = page;
  }

  @PostMapping("/list")
  ProductList list(@RequestBody CustomerRequest request) {
    return page.show(request);
  }
}
