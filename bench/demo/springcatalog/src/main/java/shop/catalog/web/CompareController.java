package shop.catalog.web;

import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import shop.catalog.CustomerRequest;
import shop.catalog.page.ComparePage;
import shop.catalog.page.Comparison;

@RestController
class CompareController {
  private final ComparePage page;

  CompareController(ComparePage page) {
    this.page = page;
  }

  @PostMapping("/compare")
  Comparison compare(@RequestBody CustomerRequest request) {
    return page.show(request);
  }
}
