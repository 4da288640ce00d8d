package shop.catalog.related;

import org.springframework.beans.factory.annotation.Value;
import org.springframework.http.MediaType;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;
import shop.catalog.CustomerRequest;

/** Calls the service that finds products by text. */
@Component
public class SearchClient {
  private final RestClient client; // null: there is no such service

  SearchClient(RestClient.Builder builder, @Value("${search.url}") String url) {
    this.client = url.isEmpty() ? null : builder.baseUrl(url).build();
  }

  public void query(CustomerRequest request) {
    if (client != null) {
      client.post().uri("/query").contentType(MediaType.APPLICATION_JSON).body(request).retrieve().toBodilessEntity();
    }
  }
}
