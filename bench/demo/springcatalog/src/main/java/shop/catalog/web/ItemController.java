package shop.catalog.web;

import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import shop.catalog.CustomerRequest;
import shop.catalog.page.ItemPage;
import shop.catalog.page.ProductDetails;

@RestController
class ItemController {
  private final ItemPage page;

  ItemController(ItemPage page) {
    this.page = page;
  }

  @PostMapping("/item")
  ProductDetails item(@RequestBody CustomerRequest request) {
    return page.show(request);
  }
}
