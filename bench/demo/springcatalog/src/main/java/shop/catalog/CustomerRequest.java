package shop.catalog;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.math.BigInteger;
import java.util.List;

/** The request of a customer, as the services of the shop pass it on. */
public record CustomerRequest(
    @JsonProperty("Seed") BigInteger seed,
    @JsonProperty("Effort") double effort,
    @JsonProperty("Currency") String currency,
    @JsonProperty("Language") String language,
    @JsonProperty("Tier") String tier,
    @JsonProperty("Items") List<Integer> items) {}
