package shop.catalog.web;

import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import shop.catalog.CustomerRequest;
import shop.catalog.page.SellerPage;
import shop.catalog.page.SellerService;

@RestController
class SellerController {
  private final SellerService page;

  SellerController(SellerService page) {
    this.page = page;
  }

  @PostMapping("/seller")
  SellerPage seller(@RequestBody CustomerRequest request) {
    return page.show(request);
  }
}
