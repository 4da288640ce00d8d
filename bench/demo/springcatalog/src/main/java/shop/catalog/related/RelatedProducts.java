package shop.catalog.related;

import java.util.List;
import java.util.stream.IntStream;
import org.springframework.stereotype.Service;
import shop.catalog.CustomerRequest;
import shop.catalog.product.Product;

@Service
public class RelatedProducts {
  private static final int MOST = 4;

  private final SearchClient search;
  private final Similarity similarity;

  RelatedProducts(SearchClient search, Similarity similarity) {
    this.search = search;
    this.similarity = similarity;
  }

  public List<Integer> of(Product p, CustomerRequest request) {
    search.query(request);
    List<Integer> neighbours = IntStream.rangeClosed(1, 20).mapToObj(i -> (p.id() + 7 * i) % 2000).toList();
    return similarity.nearest(p, neighbours).stream().limit(MOST).toList();
  }
}
