package shop.catalog.web;

import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;
import shop.catalog.product.UnknownProductException;

@RestControllerAdvice
class Failures {
  @ExceptionHandler
  ProblemDetail unknownProduct(UnknownProductException e) {
    return ProblemDetail.forStatusAndDetail(HttpStatus.NOT_FOUND, e.getMessage());
  }
}
