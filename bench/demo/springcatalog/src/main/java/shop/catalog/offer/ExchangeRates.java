package shop.catalog.offer;

import java.util.Map;
import org.springframework.stereotype.Component;

@Component
public class ExchangeRates {
  private static final Map<String, Double> RATES = Map.of("EUR", 1.0, "USD", 1.09, "JPY", 163.2);

  public double fromEuro(String currency) {
    return RATES.getOrDefault(currency, 1.0);
  }
}
