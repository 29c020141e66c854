"""stub"""


def picture_page(image, number, *, points_per_pixel):
    raise NotImplementedError
